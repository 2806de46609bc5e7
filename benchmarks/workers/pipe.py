"""Questions in, answers out: one JSON object per line.

    question := {"ask": name, "with": {argument: value}}
    answer   := {"answer": value} | {"failed": what happened}

Libraries print, and the JVM prints more; so the pipe gets a descriptor of its own, and descriptor 1 becomes
the log.
"""

from __future__ import annotations

import json
import os
import sys
import traceback


def serve(worker: object) -> None:
    """Answer questions with the methods of `worker`, until the other side closes the pipe."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            question = json.loads(line)
            try:
                answer = {"answer": getattr(worker, question["ask"])(**question["with"])}
            except Exception:
                answer = {"failed": traceback.format_exc()}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
