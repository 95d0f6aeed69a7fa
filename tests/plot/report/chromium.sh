#!/bin/sh
# A browser for the test of the page: from Debian's packages where that can be done, otherwise a line says what to do.
set -eu
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
advice="the test of the page in a browser will be skipped; install Chromium (on Debian: apt-get install chromium)"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "no Chromium: $advice"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && apt-get install -y --no-install-recommends chromium; } >/dev/null 2>&1; then
    echo "Chromium could not be installed: $advice"
fi
