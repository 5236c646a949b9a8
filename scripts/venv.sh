# make_venv DIR REQUIREMENTS...: a Python environment with these packages, made or completed only when the lists or the
# versions have changed. Sourced after common.sh.

make_venv() {
  local venv="$1" constraints="$ROOT/scripts/constraints.txt"
  local stamp="$venv/.requirements" requirements=("${@:2}") want unknown
  want="$(cat "$constraints" "${requirements[@]}")"
  (
    lock_deps
    [[ -f "$stamp" && "$(cat "$stamp")" == "$want" ]] && exit 0
    say "making the Python environment in $venv"
    # The system's Python: python3-venv belongs to it, whatever else is first in PATH.
    [[ -x "$venv/bin/python3" ]] || /usr/bin/python3 -m venv --clear "$venv"
    twice "$venv/bin/python3" -m pip install -q --disable-pip-version-check -c "$constraints" \
      "${requirements[@]/#/--requirement=}" >&2 || die "pip could not install the packages of ${requirements[*]}"
    unknown="$("$venv/bin/python3" -m pip freeze --disable-pip-version-check | { grep -vixFf "$constraints" || true; } | xargs)"
    [[ -z "$unknown" ]] || die "$constraints does not say which version of these is meant: $unknown"
    printf '%s\n' "$want" >"$stamp"
  )
}
