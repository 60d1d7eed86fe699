"""This machine, as Tapeline finds it: versions, CPU, devices, memory, and the folders it keeps things in."""

from tapeline.machine._diagnosis import Diagnosis, diagnose
from tapeline.machine._folders import CacheFolder, cache_folders, clear_caches
from tapeline.machine._text import diagnosis_text

__all__ = ["CacheFolder", "Diagnosis", "cache_folders", "clear_caches", "diagnose", "diagnosis_text"]
