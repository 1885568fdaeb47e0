"""A recording asks once, and keeps what explorers work out of its answers."""

from tests.hosts import DictHost

from uncork.host.recording import RecordingHost


def test_what_explorers_derive_is_worked_out_once_for_a_recording_also_behind_another_one():
    looked = []

    def look():
        looked.append(1)
        return len(looked)

    outer = RecordingHost(DictHost({}))
    found = [outer.derived("x", look), RecordingHost(outer).derived("x", look), outer.derived("x", look)]

    assert (found, outer.answers) == ([1, 1, 1], {})
    assert RecordingHost(DictHost({})).derived("x", look) == 2
