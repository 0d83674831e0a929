"""The groups of one step. Their leases are renewed while the step waits for its last group, however long that takes."""

from __future__ import annotations

from turnout.feed import Feed, Group, LeaseLost


def collect(feed: Feed, wanted: int) -> list[Group]:
    """Waits for so many groups. Each is there once, with the newest of its leases."""
    groups: dict[int, Group] = {}
    while len(groups) < wanted:
        try:
            feed.renew(*groups.values())
        except LeaseLost as lost:
            # Nobody has trained on them yet, and they are delivered again.
            groups = {group.id: group for group in groups.values() if group.lease not in lost.leases}
        groups.update((group.id, group) for group in feed.take(max_groups=wanted - len(groups)))
    return list(groups.values())
