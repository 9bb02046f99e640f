#!/bin/sh
# dpkg says configure and the version before, rpm how many are installed. A first install starts nothing: no server is named yet.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = configure ] && [ -z "$2" ] || [ "$1" = 1 ]; then
	echo "outbox: /etc/outbox/outbox.yaml says what to set; then: systemctl enable --now outbox"
elif [ -d /run/systemd/system ]; then
	# Not waited for: it is ready when its servers are.
	systemctl --no-block try-restart outbox.service
fi
