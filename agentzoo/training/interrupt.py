"""Defers Ctrl-C to the end of an update, so that a checkpoint can be saved."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_AFTER = 0.5  # seconds; a launcher may repeat the terminal's signal


class Interrupt:
    """Records whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.asked = False


@contextmanager
def deferred(on_interrupt: Callable[[], None]) -> Iterator[Interrupt]:
    """Inside the block the first Ctrl-C only sets `asked`; the second raises KeyboardInterrupt as usual.

    Outside the main thread, or where the program handles Ctrl-C itself, nothing changes.
    """
    interrupt, first = Interrupt(), 0.0
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield interrupt
        return

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if interrupt.asked:
            if time.monotonic() - first > AGAIN_AFTER:
                raise KeyboardInterrupt
            return
        interrupt.asked, first = True, time.monotonic()
        on_interrupt()

    signal.signal(signal.SIGINT, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
