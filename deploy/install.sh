#!/bin/sh
# Installs or upgrades ati on a machine: program, user, folders, units. What an operator wrote is
# never overwritten.
# A service that runs is handed over to the new program without closing a connection.
set -eu

usage() {
    cat <<'USAGE'
Usage: deploy/install.sh [OPTIONS] BINARY

Installs BINARY, which must agree with BINARY.sha256 next to it.

  --prefix DIR   where the program and the units go [default: /usr/local]
  --root DIR     install into this folder instead of the machine; nothing is started or signalled
  --no-upgrade   leave a running service alone; it takes the new program when it is restarted
  --dry-run      say what would be done
  --help

Environment: UPGRADE_SECONDS, how long to wait for a hand-over [60]
USAGE
}

fail() {
    echo "install: $*" >&2
    exit 1
}

prefix=/usr/local root="" dry="" upgrade=yes binary=""
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) [ $# -gt 1 ] || fail "--prefix needs a folder"; prefix=$2; shift ;;
        --root) [ $# -gt 1 ] || fail "--root needs a folder"; root=${2%/}; shift ;;
        --no-upgrade) upgrade="" ;;
        --dry-run) dry=yes ;;
        --help | -h) usage; exit 0 ;;
        -*) usage >&2; exit 2 ;;
        *) [ -z "$binary" ] || { usage >&2; exit 2; }; binary=$1 ;;
    esac
    shift
done
[ -n "$binary" ] || { usage >&2; exit 2; }
case $prefix in /*) ;; *) fail "--prefix must begin with /" ;; esac
[ -f "$binary" ] || fail "$binary: no such file"
[ -f "$binary.sha256" ] || fail "$binary.sha256 is missing: nothing says that $binary is whole"
here=$(cd "$(dirname "$0")" && pwd)

# What is done; with --dry-run, what would be.
run() {
    if [ -n "$dry" ]; then echo "would: $*"; else "$@"; fi
}

# SYSTEMCTL is for tests. Without systemd, and in another root, no unit is reloaded.
systemctl=${SYSTEMCTL:-}
if [ -z "$systemctl" ] && [ -z "$root" ] && [ -d /run/systemd/system ]; then systemctl=systemctl; fi
if [ -z "$dry" ] && [ -z "$root" ] && [ "$(id -u)" -ne 0 ]; then fail "must be run by root"; fi

# The file that is checked is the file that is installed: a copy, in the target folder, that only
# root can write.
bin=$root$prefix/bin
run install -d -m 0755 "$bin"
staged=$binary
if [ -z "$dry" ]; then
    staged=$(mktemp "$bin/.ati.XXXXXX")
    trap 'rm -f "$staged"' EXIT
    cp "$binary" "$staged"
fi
wanted=$(cut -d ' ' -f 1 <"$binary.sha256" | head -n 1)
actual=$(sha256sum "$staged" | cut -d ' ' -f 1)
[ "$wanted" = "$actual" ] || fail "$binary isn't what its .sha256 says: $actual instead of $wanted"
if [ -z "$dry" ]; then
    chmod 0755 "$staged"
    version=$("$staged" --version) || fail "$binary doesn't run on this machine"
    sync "$staged"
fi

# The user. In another root its number is looked up there.
known() { [ -f "$root/etc/$1" ] && grep -q '^ati:' "$root/etc/$1"; }
if ! known passwd; then
    run install -d -m 0755 "$root/etc"
    if command -v systemd-sysusers >/dev/null; then
        run systemd-sysusers ${root:+"--root=$root"} --inline 'u ati - "ATI edge appliance" /var/lib/ati /usr/sbin/nologin'
    else
        run useradd ${root:+--root "$root"} --system --user-group --home-dir /var/lib/ati --no-create-home --shell /usr/sbin/nologin ati
    fi
fi
uid=ati gid=ati
if [ -n "$root" ] && [ -z "$dry" ]; then
    uid=$(sed -n 's/^ati:[^:]*:\([0-9]*\):.*/\1/p' "$root/etc/passwd")
    gid=$(sed -n 's/^ati:[^:]*:\([0-9]*\):.*/\1/p' "$root/etc/group")
fi

# Folders and settings. The appliance may read /etc/ati and not write it.
run install -d -m 0750 -o 0 -g "$gid" "$root/etc/ati"
run install -d -m 0750 -o "$uid" -g "$gid" "$root/var/lib/ati"
# The user ati owns what is in there, and could have put a link to another folder there. So that user
# makes the folder, and an existing one is left as it is.
manifests=$root/var/lib/ati/manifests
if [ -n "$dry" ]; then
    echo "would: make $manifests"
elif [ ! -e "$manifests" ] && [ ! -L "$manifests" ]; then
    (cd "$root/var/lib/ati" && setpriv --reuid="$uid" --regid="$gid" --clear-groups mkdir -m 0750 manifests)
fi
if [ ! -e "$root/etc/ati/ati.toml" ]; then
    run install -m 0640 -o 0 -g "$gid" "$here/ati.toml" "$root/etc/ati/ati.toml"
fi

units=$root$prefix/lib/systemd/system
run install -d -m 0755 "$units" "$units/ati.service.d"
for unit in "$here"/systemd/*.service "$here"/systemd/*.timer "$here"/systemd/ati.service.d/*.example; do
    target=$units/${unit#"$here"/systemd/}
    if [ -n "$dry" ]; then
        echo "would: install $unit as $target"
    else
        sed "s|/usr/local/bin|$prefix/bin|g" "$unit" >"$target.new"
        chmod 0644 "$target.new"
        mv "$target.new" "$target"
    fi
    hiding=$root/etc/systemd/system/$(basename "$unit")
    if [ -e "$hiding" ] && [ ! -L "$hiding" ]; then
        echo "note: $hiding stays in force; remove it to use the one that comes with this version" >&2
    fi
done

# The program last: a process that is started from it finds everything else. The previous one is kept
# for the way back.
changed=yes
if [ -e "$bin/ati" ] && cmp -s "$binary" "$bin/ati"; then changed=""; fi
if [ -n "$changed" ]; then
    if [ -e "$bin/ati" ]; then run ln -f "$bin/ati" "$bin/ati.previous"; fi
    if [ -n "$dry" ]; then echo "would: install $binary as $bin/ati"; else mv -f "$staged" "$bin/ati"; fi
fi
if [ -n "$dry" ]; then exit 0; fi
echo "$version is at $prefix/bin/ati"

[ -n "$systemctl" ] || exit 0
"$systemctl" daemon-reload
running=$("$systemctl" list-units --plain --no-legend --state=active ati.service 'ati@*.service' | cut -d ' ' -f 1)
if [ -z "$running" ]; then
    echo "not running; to start it: systemctl enable --now ati"
    exit 0
fi
if [ -z "$upgrade" ]; then
    if [ -n "$changed" ]; then echo "running on as before: $running"; fi
    exit 0
fi

main_pid() { "$systemctl" show --property=MainPID --value "$1"; }
# Compares what runs, not whether this run installed the file: an earlier run may have been
# interrupted after it had put the file there.
is_current() { cmp -s "/proc/$(main_pid "$1")/exe" "$bin/ati"; }
# The processes that this one has started to take over from it.
successors() {
    # shellcheck disable=SC2013 # they stand on one line
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        if tr '\0' '\n' 2>/dev/null <"/proc/$child/cmdline" | grep -qx -e --upgrade; then echo "$child"; fi
    done
}
# The old process waits longer than this script. A successor that doesn't serve yet is ended, so that
# it can't take over after the previous program is back.
call_off() {
    for successor in $(successors "$1"); do
        kill -TERM "$successor" 2>/dev/null || continue
        waited=0
        while [ -d "/proc/$successor" ] && [ "$waited" -lt 50 ]; do
            sleep 0.1
            waited=$((waited + 1))
        done
    done
}
# SIGUSR2: the process starts the program that is now at its path, hands its sockets over, and tells
# systemd the new main process.
hand_over() {
    # For other types systemd would take the end of the old process for the end of the service.
    if [ "$("$systemctl" show --property=Type --value "$1")" != notify ]; then
        echo "note: $1 isn't of Type=notify, so it can't be handed over; it takes the new program with: systemctl restart $1" >&2
        return 0
    fi
    old=$(main_pid "$1")
    "$systemctl" kill --kill-whom=main --signal=SIGUSR2 "$1" || return 1
    waited=0
    while [ "$waited" -lt "$((${UPGRADE_SECONDS:-60} * 5))" ]; do
        new=$(main_pid "$1")
        if [ "$new" != "$old" ] && [ "$new" -gt 1 ] && "$systemctl" is-active --quiet "$1"; then
            echo "$1: process $old has handed over to $new"
            return 0
        fi
        sleep 0.2
        waited=$((waited + 1))
    done
    call_off "$old"
    return 1
}
for service in $running; do
    if is_current "$service"; then continue; fi
    if ! hand_over "$service"; then
        # A restart, or the next boot, must not meet a program that doesn't start.
        if [ -e "$bin/ati.previous" ]; then mv -f "$bin/ati.previous" "$bin/ati"; fi
        fail "$service did not hand over: the old process serves on, and the program before is back at $prefix/bin/ati. Why: journalctl -u $service"
    fi
done
