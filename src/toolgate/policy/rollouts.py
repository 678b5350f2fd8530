"""Decides which version of a profile a caller has during a rollout.

The draw is a hash of the profile, the candidate's version, and the caller or task. It is the same on every
node and after every restart, and needs no state. It never depends on the share: a number below a low share is
below every higher one, so a higher share adds callers and removes none.
"""

from dataclasses import replace
from hashlib import sha256
from typing import Final, NamedTuple

from toolgate.model.tasks import Profile, Side
from toolgate.model.tools import Snapshot
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.scope import ProfileVersion

BUCKETS: Final = 10_000  # a hundredth of a percent: finer than any share
PER_PERCENT: Final = BUCKETS // 100


class Cohort(NamedTuple):
    """Callers with one version before a change and one after it."""

    before: Side
    after: Side
    share: float
    """The percentage of all callers."""


def draw_bucket(profile_id: str, version: int, subject: str) -> int:
    drawn = f"{profile_id}\n{version}\n{subject}".encode(errors="surrogatepass")
    return int.from_bytes(sha256(drawn).digest()[:8], "big") % BUCKETS


def draw_side(profile: Profile, *, principal_id: str, task_id: str) -> Side:
    """The version that this caller has of a profile under a task; `task_id` is empty without one."""
    rollout = profile.rollout
    if rollout is None:
        return "stable"
    subject = principal_id if rollout.by == "caller" else task_id
    number = draw_bucket(profile.profile_id, rollout.version, f"{rollout.by}:{subject}")
    return "candidate" if number < rollout.share * PER_PERCENT else "stable"


def draw_versions(
    platform: Snapshot, principal_id: str, *, task: TaskPolicy | None, request: SessionRequest
) -> Snapshot:
    task_id, own = ("", None) if task is None else (task.task_id, task.profile)
    profiles = (platform.profiles.get(name) for name in (own, request.profile) if name is not None)
    candidates = frozenset(
        one.profile_id
        for one in profiles
        if one is not None and draw_side(one, principal_id=principal_id, task_id=task_id) == "candidate"
    )
    return replace(platform, candidates=candidates) if candidates else platform


def find_candidates(platform: Snapshot, principal_id: str) -> frozenset[str]:
    """The profiles whose candidate a caller has under every task."""
    return frozenset(
        one.profile_id
        for one in platform.profiles.values()
        if one.rollout is not None and one.rollout.by == "caller"
        if draw_side(one, principal_id=principal_id, task_id="") == "candidate"
    )


def list_sides(platform: Snapshot, task: TaskPolicy) -> tuple[Snapshot, ...]:
    """`platform` as seen by callers of the task: once, or twice during a rollout of its profile."""
    profile = None if task.profile is None else platform.profiles.get(task.profile)
    if profile is None or profile.rollout is None:
        return (platform,)
    if profile.rollout.by == "task":
        return (draw_versions(platform, "", task=task, request=SessionRequest()),)
    return platform, replace(platform, candidates=frozenset({profile.profile_id}))


def find_version(platform: Snapshot, name: str) -> ProfileVersion | None:
    profile = platform.profiles.get(name)
    if profile is None:
        return None
    rollout = profile.rollout
    if rollout is None:
        return ProfileVersion(name, profile.version)
    share = rollout.share
    if name in platform.candidates:
        return ProfileVersion(name, rollout.version, "candidate", share, rollout.by)
    return ProfileVersion(name, profile.version, "stable", 100 - share, rollout.by)


def find_versions(
    platform: Snapshot, task: TaskPolicy | None, request: SessionRequest
) -> tuple[ProfileVersion, ...]:
    """The versions of the profiles that apply to a scope. The profile of an unenforced task does not
    apply."""
    named = [None if task is None or not task.enforced else task.profile, request.profile]
    found = (find_version(platform, name) for name in dict.fromkeys(named) if name is not None)
    return tuple(one for one in found if one is not None)


def split_cohorts(before: Profile | None, after: Profile | None, task_id: str) -> tuple[Cohort, ...]:
    """How a change of a task's profile divides the callers of the task. If only the share of a rollout
    changes, callers below the lower share keep the candidate. Different rollouts draw independently."""
    old, new = _count_candidate_buckets(before, task_id), _count_candidate_buckets(after, task_id)
    draws = {
        (one.profile_id, one.rollout.version, one.rollout.by)
        for one in (before, after)
        if one is not None and one.rollout is not None
    }
    both = min(old, new) if len(draws) == 1 else old * new // BUCKETS
    counts: dict[tuple[Side, Side], int] = {
        ("stable", "stable"): BUCKETS - old - new + both,
        ("stable", "candidate"): new - both,
        ("candidate", "stable"): old - both,
        ("candidate", "candidate"): both,
    }
    return tuple(Cohort(*sides, number / PER_PERCENT) for sides, number in counts.items() if number)


def _count_candidate_buckets(profile: Profile | None, task_id: str) -> int:
    """How many of the numbers that callers of the task may draw select the candidate."""
    if profile is None or profile.rollout is None:
        return 0
    if profile.rollout.by == "caller":
        return profile.rollout.share * PER_PERCENT
    return BUCKETS if draw_side(profile, principal_id="", task_id=task_id) == "candidate" else 0
