#!/bin/sh
# Installs the Debian packages that some tests use: a current PostgreSQL, PgBouncer and Chromium.
# Where that is not possible the tests that need them are skipped, and say so.
set -u
packages="postgresql pgbouncer chromium"
missing() { for name in $packages; do dpkg -s "$name" >/dev/null 2>&1 || echo "$name"; done; }
if ! command -v apt-get >/dev/null 2>&1; then
  echo "skipped: tests on Debian's PostgreSQL, PgBouncer and Chromium, since this is no Debian"
elif [ -z "$(missing)" ] && [ -z "${CI:-}" ]; then
  :
elif [ "$(id -u)" != 0 ]; then
  echo "skipped: tests that need $(missing | tr '\n' ' ')(install them with apt-get to run these tests)"
else
  # In CI also what is installed is brought up to date: the tests are about the current release.
  export DEBIAN_FRONTEND=noninteractive
  # `postgresql` only depends on the package with the server, which has to be named for that.
  servers=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'postgresql-[0-9]*' 2>/dev/null |
    sed -n 's/^installed \(postgresql-[0-9]*\)$/\1/p')
  { apt-get update && apt-get install -y $packages $servers; } >/dev/null 2>&1 ||
    echo "skipped: tests that need $packages, since apt-get could not install them"
fi
exit 0
