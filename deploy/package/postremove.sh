#!/bin/sh
# What outbox kept for itself, events among it, goes with nobody's command but the administrator's own.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then
	rm -rf /etc/outbox
	if [ -d /var/lib/outbox ] && ! rmdir /var/lib/outbox 2>/dev/null; then
		echo "outbox: /var/lib/outbox is not empty and stays, with its user outbox" >&2
	elif getent passwd outbox >/dev/null; then
		userdel outbox
	fi
fi
