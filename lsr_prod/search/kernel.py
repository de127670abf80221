"""Matching one query against one shard: bounds for every block first, then the blocks that can matter, best first.

1. ``_bound``: the runs of the query's terms are read, not their postings. Every block gets an upper bound of the score
   of its documents, and the number of the query's terms that occur in it.
2. ``_rank``: a block with fewer than ``required`` terms is dropped, the others are sorted by falling bound.
3. ``_scan``: the postings of a block are added up, in the query's order, and its documents offered to the heap. It ends
   when the next bound is below the worst score of a full heap: no document after it can be a hit.

Scores are float32 sums in the query's order, so that they do not depend on which blocks are read. They are never
negative, and so the bits of a score, as an integer, rise as it does; comparing those is what a CPU does in bulk.
"""

from typing import Any

import numpy as np

from lsr_prod.compiled import compiled
from lsr_prod.formats.shard import BITMAP_ABOVE, NO_RUN
from lsr_prod.search.heap import offer, sort_hits

__all__ = ["DAMAGED", "DONE", "ENTRY", "PAUSED", "PROGRESS", "TOO_SMALL", "match_shard"]

DONE, PAUSED, DAMAGED, TOO_SMALL = 0, 1, -1, -2
# A run of a term of the query: the next one of the same block (-1 at the end), its first item in ids and in impacts (of
# a compressed run of one: that impact), its postings less 1, and which term of the query it is of.
ENTRY = np.dtype([("next", "<i4"), ("ids", "<u4"), ("impacts", "<u4"), ("count", "<u2"), ("term", "<u2")])
PROGRESS = 7  # places of the array that says how far a query is: see match_shard

_LEVELS = 512  # of the sort by bounds: two octaves below the largest
_LEVEL_BITS = 15  # of a float32 that one level spans
_INFINITE = 0x7F800000  # the bits of infinity; those of NaN are above


@compiled
def match_shard(
    term_runs: Any,
    term_postings: Any,
    run_gaps: Any,
    run_counts: Any,
    run_maxima: Any,
    term_ids: Any,
    term_impacts: Any,
    ids: Any,
    impacts: Any,
    compressed: bool,
    id_rank: Any,
    block_size: int,
    allowed: Any,
    query_ids: Any,
    query_weights: Any,
    counted: Any,
    required: int,
    floor: float,
    exhaustive: bool,
    budget: int,
    block_bounds: Any,
    block_hits: Any,
    block_heads: Any,
    block_order: Any,
    entries: Any,
    scores: Any,
    score_bits: Any,
    counts: Any,
    top_scores: Any,
    top_documents: Any,
    top_counts: Any,
    k: int,
    progress: Any,
) -> int:
    """Find the best k documents of a shard.

    Args:
        term_runs: and the eight after it: see ``formats.shard``.
        term_postings: where a term's postings begin.
        run_gaps: steps between a term's blocks.
        run_counts: postings of a run less 1.
        run_maxima: largest impacts.
        term_ids: where a term's items in ``ids`` begin.
        term_impacts: where its items in ``impacts`` begin.
        ids: places in the block.
        impacts: impacts.
        compressed: whether ids may be bitmaps, and runs of one have no item in ``impacts``.
        id_rank: uint32 [N], places by id.
        block_size: documents in a block.
        allowed: uint8 [N], 1 for documents that may be found; empty: all.
        query_ids: int32 [q], terms of the arrays, none twice.
        query_weights: float32 [q], score of one impact unit.
        counted: uint8 [q], 1 if the term counts towards the overlap.
        required: counted terms that make a match, 1 or more.
        floor: least score of a hit.
        exhaustive: read every block in which a document can match, so that the matches are counted.
        budget: postings after which to pause, at the end of a block.
        block_bounds: float32, a place for every block, and so are the three after it.
        block_hits: uint16.
        block_heads: int32.
        block_order: int32.
        entries: ``ENTRY``, a place for every run of the query's terms.
        scores: float32 [256 or 65,536], zeros before and after.
        score_bits: the same memory as int32.
        counts: uint16 [256 or 65,536], zeros before and after.
        top_scores: float32, k places, out: scores of the hits.
        top_documents: int64, k places, out: their ordinals.
        top_counts: uint16, k places, out: their shared terms.
        k: hits wanted.
        progress: int64 [7], out, zeros for a new query: blocks dealt with, blocks ranked, hits, documents seen that
            match, postings read, 1 if blocks were left out because no document of them can be a hit, and the bits of
            the largest bound.

    Returns:
        DONE: the hits are sorted. PAUSED: call again with everything as it is. DAMAGED: the arrays contradict
        themselves. TOO_SMALL: there are more entries than places, ``progress[0]`` of them.
    """
    blocks = -(-len(id_rank) // block_size)
    bounds, hits, heads = block_bounds[:blocks], block_hits[:blocks], block_heads[:blocks]
    if progress[1] == 0:
        made = _bound(
            term_runs,
            term_postings,
            run_gaps,
            run_counts,
            run_maxima,
            term_ids,
            term_impacts,
            compressed,
            len(ids),
            len(impacts),
            query_ids,
            query_weights,
            counted,
            bounds,
            hits,
            heads,
            entries,
            progress,
        )
        if made < 0:
            return int(made)
        least = np.float32(0) if exhaustive else np.float32(floor)
        ranked = _rank(bounds, hits, heads, len(query_ids), required, least, block_order, progress)
        if ranked < 0:
            return DAMAGED
        progress[1] = ranked
    state = _scan(
        ids,
        impacts,
        compressed,
        id_rank,
        block_size,
        allowed,
        query_weights,
        counted,
        required,
        np.float32(floor),
        exhaustive,
        budget,
        bounds,
        heads,
        block_order,
        entries,
        scores,
        score_bits,
        counts,
        top_scores[:k],
        top_documents[:k],
        top_counts[:k],
        progress,
    )
    # An id outside its block left its score where the next query would meet it.
    strays: Any = np.int64(0)
    for place in range(block_size, min(len(scores), 1 << (8 * ids.itemsize))):
        strays |= np.int64(score_bits[place]) | np.int64(counts[place])
    if strays:
        scores[:] = 0
        counts[:] = 0
        return DAMAGED
    if state == DONE:
        sort_hits(top_scores, top_documents, top_counts, id_rank, progress[2])
    return int(state)


@compiled
def _bound(
    term_runs: Any,
    term_postings: Any,
    run_gaps: Any,
    run_counts: Any,
    run_maxima: Any,
    term_ids: Any,
    term_impacts: Any,
    compressed: bool,
    id_items: int,
    impact_items: int,
    query_ids: Any,
    query_weights: Any,
    counted: Any,
    bounds: Any,
    hits: Any,
    heads: Any,
    entries: Any,
    progress: Any,
) -> int:
    """Read the runs of the query's terms; returns the entries made."""
    total: Any = np.int64(0)
    for term_id in query_ids:
        if term_id < 0 or term_id >= len(term_runs) - 1:
            return DAMAGED
        first, last = np.int64(term_runs[term_id]), np.int64(term_runs[term_id + 1])
        if first > last or last > len(run_gaps):
            return DAMAGED
        if term_ids[term_id] < 0 or term_ids[term_id + 1] > id_items:
            return DAMAGED
        if term_impacts[term_id] < 0 or term_impacts[term_id + 1] > impact_items:
            return DAMAGED
        total += last - first
    if total > len(run_gaps):  # terms that share runs
        return DAMAGED
    if total > len(entries):
        progress[0] = total
        return TOO_SMALL
    bounds[:] = 0
    hits[:] = 0
    heads[:] = -1
    made: Any = np.int32(0)
    # From the last term to the first: what is put in front of a block's list last stands first.
    for term in range(len(query_ids) - 1, -1, -1):
        term_id = query_ids[term]
        weight, adds = query_weights[term], np.uint16(counted[term])
        postings: Any = term_postings[term_id]
        id_at: Any = term_ids[term_id]
        impact_at: Any = term_impacts[term_id]
        block: Any = np.int64(-1)
        before: Any = block
        for run in range(np.int64(term_runs[term_id]), np.int64(term_runs[term_id + 1])):
            gap = run_gaps[run]
            block += gap
            if gap == NO_RUN:
                continue
            # A block that a term meets twice would have a bound, and a count, past every limit.
            if block <= before or block >= len(bounds):
                return DAMAGED
            before = block
            bounds[block] += weight * np.float32(run_maxima[run])
            hits[block] += adds
            entry = entries[made]
            entry.next = heads[block]
            entry.ids = id_at
            entry.impacts = impact_at
            entry.count = run_counts[run]
            entry.term = term
            heads[block] = made
            made += np.int32(1)
            count = np.int64(run_counts[run]) + 1
            postings += count
            id_at += count
            impact_at += count
            if compressed:
                if count == 1:
                    entry.impacts = run_maxima[run]
                    impact_at -= 1
                elif count > BITMAP_ABOVE:
                    id_at -= count - BITMAP_ABOVE
        if postings != term_postings[term_id + 1] or id_at != term_ids[term_id + 1]:
            return DAMAGED
        if impact_at != term_impacts[term_id + 1]:
            return DAMAGED
    return int(made)


@compiled
def _rank(bounds: Any, hits: Any, heads: Any, terms: int, required: int, floor: Any, order: Any, progress: Any) -> int:
    """Sort the blocks that can matter by the level of their bound; returns how many there are."""
    # Bounds are sums in another order than scores: this is more than both can be off by rounding.
    slack = np.float32(1) + np.float32(terms + 1) * np.float32(2.4e-7)
    bits = bounds.view(np.int32)
    largest = np.int32(0)
    for block in range(len(bounds)):
        bounds[block] *= slack
        largest = max(largest, bits[block])
    if largest >= _INFINITE:
        return DAMAGED
    progress[6] = largest
    places = np.zeros(_LEVELS, np.int32)
    for block in range(len(bounds)):
        if hits[block] >= required and heads[block] >= 0 and bounds[block] >= floor:
            places[min((largest - bits[block]) >> _LEVEL_BITS, _LEVELS - 1)] += 1
    total: Any = np.int32(0)
    for level in range(_LEVELS):  # where each level begins
        count = places[level]
        places[level] = total
        total += count
    for block in range(len(bounds)):
        if hits[block] >= required and heads[block] >= 0 and bounds[block] >= floor:
            mine = min((largest - bits[block]) >> _LEVEL_BITS, _LEVELS - 1)
            order[places[mine]] = block
            places[mine] += 1
    return int(total)


@compiled
def _add_up(
    ids: Any,
    impacts: Any,
    compressed: bool,
    query_weights: Any,
    counted: Any,
    first: int,
    entries: Any,
    scores: Any,
    counts: Any,
) -> int:
    """Add the postings of a block's entries; returns how many, -1 where a bitmap has not as many bits as postings."""
    added: Any = np.int64(0)
    at: Any = first
    while at >= 0:
        entry = entries[at]
        count: Any = np.int64(entry.count) + 1
        id_at: Any = np.int64(entry.ids)
        impact_at: Any = np.int64(entry.impacts)
        weight, adds = query_weights[entry.term], np.uint16(counted[entry.term])
        if compressed and count == 1:
            scores[ids[id_at]] += weight * np.float32(impact_at)
            counts[ids[id_at]] += adds
        elif compressed and count > BITMAP_ABOVE:
            stop = impact_at + count
            for number in range(BITMAP_ABOVE):
                bits = np.int64(ids[id_at + number])
                place: Any = np.int64(8 * number)
                while bits:
                    if bits & 1:
                        if impact_at == stop:
                            return -1
                        scores[place] += weight * np.float32(impacts[impact_at])
                        counts[place] += adds
                        impact_at += 1
                    bits >>= 1
                    place += 1
            if impact_at != stop:
                return -1
        else:
            for step in range(count):
                local = ids[id_at + step]
                scores[local] += weight * np.float32(impacts[impact_at + step])
                counts[local] += adds
        added += count
        at = entry.next
    return int(added)


@compiled
def _scan(
    ids: Any,
    impacts: Any,
    compressed: bool,
    id_rank: Any,
    block_size: int,
    allowed: Any,
    query_weights: Any,
    counted: Any,
    required: int,
    floor: Any,
    exhaustive: bool,
    budget: int,
    bounds: Any,
    heads: Any,
    order: Any,
    entries: Any,
    scores: Any,
    score_bits: Any,
    counts: Any,
    top_scores: Any,
    top_documents: Any,
    top_counts: Any,
    progress: Any,
) -> int:
    """Read ranked blocks until none can matter or the budget is spent."""
    documents, ranked, filled = len(id_rank), progress[1], progress[2]
    pause_at = progress[4] + budget
    bound_bits = bounds.view(np.int32)
    least = np.empty(1, np.float32)
    least_bits = least.view(np.int32)
    least[0] = max(floor, top_scores[0]) if filled and filled == len(top_scores) else floor
    while progress[0] < ranked:
        if progress[4] >= pause_at:
            progress[2] = filled
            return PAUSED
        block = order[progress[0]]
        if bounds[block] < least[0] and not exhaustive:
            progress[5] = 1
            level = min((progress[6] - bound_bits[block]) >> _LEVEL_BITS, _LEVELS - 1)
            if level > (progress[6] - least_bits[0]) >> _LEVEL_BITS:
                break  # a level below: so is every block after it
            progress[0] += 1
            continue
        progress[0] += 1
        added = _add_up(ids, impacts, compressed, query_weights, counted, heads[block], entries, scores, counts)
        if added < 0:
            scores[:] = 0
            counts[:] = 0
            return DAMAGED
        progress[4] += added
        base = np.int64(block) * block_size
        size: Any = min(block_size, documents - base)
        best, seen = np.int32(0), np.int64(0)
        if len(allowed):
            for place in range(size):
                seen += (counts[place] >= required) & allowed[base + place]
                best = max(best, score_bits[place])
        else:
            for place in range(size):
                seen += counts[place] >= required
                best = max(best, score_bits[place])
        progress[3] += seen
        if seen and best >= least_bits[0] and len(top_scores):
            for place in range(size):
                if score_bits[place] < least_bits[0] or counts[place] < required:
                    continue
                if len(allowed) and not allowed[base + place]:
                    continue
                filled = offer(
                    top_scores, top_documents, top_counts, id_rank, filled, scores[place], base + place, counts[place]
                )
                if filled == len(top_scores):
                    least[0] = max(floor, top_scores[0])
        scores[:block_size] = 0
        counts[:block_size] = 0
    progress[2] = filled
    return DONE
