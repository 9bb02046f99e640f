"""A process that says when it hangs, in its second event: python3 consumer.py SUBSCRIPTION"""

import itertools
import os
import sys
import threading

from outboxrelay import Event, Outbox

count = itertools.count(1)


def handle(event: Event) -> None:
    if next(count) == 2:
        print(event.payload, flush=True)
        threading.Event().wait()


Outbox(os.environ["OUTBOX_URL"], os.environ["OUTBOX_TOKEN"]).subscription(sys.argv[1]).consume(handle)
