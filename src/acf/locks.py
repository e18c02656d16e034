"""Locks on open files. The system lets go of them when their process ends, however it ends."""

import errno
import os
import time

_ATTEMPTS, _PAUSE_SECONDS = 10, 0.02


class NoLocksError(OSError):
    """The system, or the file system of this file, has no locks."""


def lock(file: int, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file until it is closed; False where another process holds it, unless ``wait``.

    Raises `NoLocksError` where there are no locks.
    """
    try:
        import fcntl
    except ImportError as error:
        raise NoLocksError(errno.ENOTSUP, os.strerror(errno.ENOTSUP)) from error
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(file, kind)
    except BlockingIOError:
        return False
    except OSError as error:
        raise NoLocksError(error.errno, error.strerror) from error
    return True


def try_lock(file: int, exclusive: bool) -> bool:
    """Lock an open file, if no other process holds it; a reader's short lock is waited for.

    Where there are no locks, nobody holds one.
    """
    for _ in range(_ATTEMPTS):
        try:
            if lock(file, shared=not exclusive):
                return True
        except NoLocksError:
            return True
        if not exclusive:
            return False
        time.sleep(_PAUSE_SECONDS)
    return False
