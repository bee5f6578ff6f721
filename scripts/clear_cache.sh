#!/bin/sh
# Clears a gearcache cache from cron. Entries that a live process uses stay.
#
#   clear_cache.sh [--dry-run] [CACHE_DIR]
#
#   MAX_SIZE   keep the last used entries up to this size (10GB)
#   MAX_AGE    drop entries that nobody used for so long (30d)
#   GEARCACHE  the command (gearcache)
#
# 15 3 * * *  MAX_SIZE=50GB /srv/app/scripts/clear_cache.sh /srv/app/.torchair_cache
set -eu

usage() {
    echo "usage: clear_cache.sh [--dry-run] [CACHE_DIR]" >&2
    exit 2
}

dry_run=
if [ "${1:-}" = --dry-run ]; then
    dry_run=--dry-run
    shift
fi
[ $# -le 1 ] || usage
case "${1:-}" in -*) usage ;; esac

root=${1:-${TORCHAIR_CACHE_HOME:-}}
if [ -z "$root" ]; then
    echo "clear_cache.sh: name the cache: cron's working folder is not your service's" >&2
    usage
fi
[ -d "$root" ] || exit 0

status=0
${GEARCACHE:-gearcache} prune $dry_run --cache-dir "$root" \
    --max-size "${MAX_SIZE:-10GB}" --older-than "${MAX_AGE:-30d}" || status=$?
# 4: entries in use stayed, which is what is wanted here.
[ "$status" -eq 4 ] && exit 0
exit "$status"
