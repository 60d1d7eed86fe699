"""The documentation site: pages of docs/, pages of the root and of packages, and pages that scripts write."""

from tools.docs.site._build import Site, build_site
from tools.docs.site._rooms import Room, owner_of, rooms
from tools.docs.site._sources import EXTRA_PAGES, site_path
