"""Reads ctest's JUnit report and prints `N passed, N failed[, N skipped]` as the last line.

One ctest entry counts as one test, unless it is a script whose output ends with such a line itself: then its cases count.
Exits with 1 when a test failed or none ran.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")


def own_count(output):
    """The cases that a script counted in its last line, or None."""
    lines = output.strip().splitlines()
    match = SUMMARY.match(lines[-1].strip()) if lines else None
    return [int(group or 0) for group in match.groups()] if match else None


def count(case):
    """(passed, failed, skipped) of one entry of the report."""
    status = case.get("status")
    if status in ("notrun", "disabled") and case.find("failure") is None:
        return [0, 0, 1]
    cases = own_count(case.findtext("system-out") or "")
    if status == "run":
        return cases or [1, 0, 0]
    if cases:
        return [cases[0], max(cases[1], 1), cases[2]]
    return [0, 1, 0]


def main(report):
    total = [0, 0, 0]
    failures = []
    try:
        cases = ElementTree.parse(report).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError) as error:
        print(f"no test report: {error}", file=sys.stderr)
        cases = []
    for case in cases:
        result = count(case)
        total = [sum(pair) for pair in zip(total, result)]
        if result[1]:
            failures.append(case.get("name"))
    for name in failures:
        print(f"failed: {name}")
    passed, failed, skipped = total
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
