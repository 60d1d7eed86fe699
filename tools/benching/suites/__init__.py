"""Suites of measurements, each in a fresh process beside its peer; docs/benchmarks.md has the figures.

>>> str(Summary.of([3.0, 1.0, 2.0]))
'2.00 [1.00-3.00]'
"""

from tools.benching.suites._decode_rows import group_of_file
from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._peer import PEERS, Peer, find_peer
from tools.benching.suites._picture_peer import PICTURE_PEER, PicturePeer, find_picture_peer
from tools.benching.suites._plan import Plan, tiny_plan
from tools.benching.suites._report import Run, as_markdown, as_text, write_docs, write_json
from tools.benching.suites._run import BenchError, Runner
from tools.benching.suites._sentence_peer import SENTENCE_PEERS, SentencePeer, find_sentence_peer
from tools.benching.suites._serve_peer import SERVER, ServerPeer, find_server
from tools.benching.suites._serve_rows import ServeGroup
from tools.benching.suites._speech_peer import SPEECH_PEER, SpeechPeer, find_speech_peer
from tools.benching.suites._stats import Summary
from tools.benching.suites._suites import MORE_ROUNDS, ROUNDS, SUITES, run_suite
from tools.benching.suites._torch_peer import TORCH, TorchPeer, find_torch_peer
