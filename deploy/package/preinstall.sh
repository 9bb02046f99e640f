#!/bin/sh
# Before the files come, one of which is group outbox's.
set -e
getent group outbox >/dev/null || groupadd --system outbox
getent passwd outbox >/dev/null ||
	useradd --system --gid outbox --home-dir /var/lib/outbox --no-create-home --shell /usr/sbin/nologin outbox
