"""Cluster tables: what results/cluster.json says, as Markdown; no Ray is needed."""

from rendering import figures, table


def cluster_builds() -> str:
    """CPU seconds and bytes on one machine and on nodes."""
    found = figures("cluster")["build"]
    alone = found["one_process_cpu_seconds"]
    rows = [["one process, no Ray", f"{alone:.0f}", "", ""]]
    for each in found["clusters"]:
        spent, nodes = each["cpu_seconds"], each["nodes"]
        same = f"all {each['files']}" if each["same_bytes"] else "no"
        rows.append([f"{nodes} node{'s' * (nodes > 1)}", f"{spent:.0f}", f"{spent / alone:.2f}×", same])
    head = [f"{found['tokens']:,} tokens", "CPU seconds in all", "beside one process", "files with the same bytes"]
    return table(head, rows)


def cluster_kills() -> str:
    """Builds that went on, or were resumed, after a kill."""
    found = figures("cluster")["kills"].items()
    return table(
        ["killed", "builds", "same bytes"], [[what, str(o["killed"]), str(o["same_bytes"])] for what, o in found]
    )


def cluster_searches() -> str:
    """What actors add to a search."""
    found = figures("cluster")["search"]
    rows = []
    for farm in found["farms"]:
        trip = farm["empty_trip_ms"]
        pairs = [farm[name] for name in ("one_query_ms", "batch_of_64_ms")]
        rows.append(
            [
                str(farm["actors"]),
                f"{farm['answers_differing']} of {farm['answers_compared']:,}",
                f"{trip['median']:.1f} ({trip['fewest']:.1f})",
                *(
                    f"{pair[name]['median']:.1f} ({pair[name]['fewest']:.1f})"
                    for pair in pairs
                    for name in ("one process", "actors")
                ),
            ]
        )
    head = ["actors", "answers that differ", "empty trip, ms", "one query, one process", "one query, actors"]
    return table([*head, "64 queries, one process", "64 queries, actors"], rows)
