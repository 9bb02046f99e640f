#!/bin/sh
# dpkg says remove or upgrade, rpm how many stay. An upgrade goes on serving until the new program is there.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now outbox.service
	fi
	;;
esac
