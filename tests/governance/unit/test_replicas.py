"""What a process keeps of a cache is trusted for a second, and never past its end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relevo.governance.core.replicas import TRUST_SECONDS, Kept, Replicas

TTL = 5.0
STEPS = st.lists(
    st.tuples(st.sampled_from(["get", "ask", "reload", "forget"]), st.floats(0, 1.5)), max_size=60
)


@given(STEPS, st.floats(0, 0.5))
def test_nothing_outdated_is_served_past_its_time(
    steps: list[tuple[str, float]], late: float
) -> None:
    replicas, now, version, loaded_at = Replicas(TTL), 100.0, 0, 100.0
    replaced_at: dict[bytes, float] = {}
    for what, seconds in steps:
        now += seconds
        match what:
            case "reload":
                replaced_at[b"%d" % version] = now
                version, loaded_at = version + 1, now
            case "forget":
                replicas.forget("k")
            case "ask":  # the answer arrives later; what it says is of some time in between
                asked_at, known = now, replicas.version("k")
                if known == str(version):
                    kept = replicas.confirm("k", known, now - loaded_at, asked_at)
                    assert kept is not None
                elif now - loaded_at < TTL:
                    replicas.put("k", str(version), b"%d" % version, now - loaded_at, asked_at)
                now += late
            case _:
                kept = replicas.get("k", now)
                if kept is not None:
                    assert 0 <= kept.age < TTL
                    assert now < replaced_at.get(kept.data, now) + TRUST_SECONDS + late + 1e-6


def test_the_key_used_longest_ago_goes_first() -> None:
    replicas = Replicas(TTL, keys_max=2)
    for key in ("a", "b"):
        replicas.put(key, "1", key.encode(), 0.0, 0.0)
    assert replicas.get("a", 0.1) == Kept(b"a", 0.1)
    replicas.put("c", "1", b"c", 0.0, 0.2)
    assert (len(replicas), replicas.version("b")) == (2, "")
    assert replicas.confirm("b", "1", 0.0, 0.2) is None
