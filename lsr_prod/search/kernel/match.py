"""Match one query against one shard: compute an upper bound for every block, then read the best blocks first.

1. ``_bound_blocks`` reads the runs of the query's terms, not their postings. Every block gets an upper bound of the
   scores of its documents, and the number of query terms that occur in it.
2. ``_rank_blocks`` drops blocks with fewer than ``required`` terms and sorts the others by falling bound.
3. ``_scan_blocks`` adds up the postings of one block after another, in the query's order, and offers its documents to
   the heap. It ends when the next bound is below the worst score of a full heap: no later document can be a hit.

Scores are float32 sums in the query's order, so they do not depend on which blocks are read. They are never negative,
so their bits, read as integers, have the same order; CPUs compare integers in bulk.

numba caches compiled code per source file and does not see changes in the functions of ``heap`` that are compiled in
here: after a change there, change this file too or clear the cache.
"""

from typing import Any

import numpy as np

from lsr_prod.compiled import compiled
from lsr_prod.formats.shard import BITMAP_ABOVE, NO_RUN
from lsr_prod.search.kernel.arrays import (
    BLOCKS_RANKED,
    BLOCKS_SKIPPED,
    DAMAGED,
    DONE,
    ENTRIES_NEEDED,
    HITS,
    LARGEST_BOUND,
    MATCHED,
    NEXT_BLOCK,
    PAUSED,
    POSTINGS_READ,
    TOO_SMALL,
    KernelQuery,
    PostingArrays,
    ScanMemory,
)
from lsr_prod.search.kernel.heap import offer, sort_hits

__all__ = ["match_shard"]

_LEVELS = 512  # of the sort by bounds: two octaves below the largest bound
_LEVEL_BITS = 15  # bits of a float32 that one level spans
_INFINITY_BITS = 0x7F800000  # the bits of NaN are above


@compiled
def match_shard(
    posting_arrays: Any, kernel_query: Any, allowed: Any, budget: int, scan_memory: Any, k: int, progress: Any
) -> int:
    """Find the best k documents of a shard.

    Args:
        posting_arrays: the fields of ``PostingArrays`` as a plain tuple.
        kernel_query: the fields of ``KernelQuery`` as a plain tuple.
        allowed: uint8 [N], 1 for documents that may be found; empty: all.
        budget: postings after which to pause, at the end of a block.
        scan_memory: the fields of ``ScanMemory`` as a plain tuple.
        k: hits wanted.
        progress: int64 [PROGRESS_PLACES], out, zeros for a new query.

    Returns:
        DONE: the hits are sorted. PAUSED: call again with the same arguments. DAMAGED: the arrays contradict each
        other. TOO_SMALL: call again with as many entries as ``progress[ENTRIES_NEEDED]``.
    """
    postings, query = PostingArrays(*posting_arrays), KernelQuery(*kernel_query)
    whole = ScanMemory(*scan_memory)
    blocks = -(-len(postings.id_rank) // postings.block_size)
    memory = ScanMemory(
        whole.bounds[:blocks],
        whole.terms_present[:blocks],
        whole.first_entries[:blocks],
        whole.order,
        whole.entries,
        whole.scores,
        whole.score_bits,
        whole.counts,
        whole.top_scores[:k],
        whole.top_documents[:k],
        whole.top_counts[:k],
    )
    if progress[BLOCKS_RANKED] == 0:
        state = _bound_blocks(postings, query, memory, progress)
        if state != DONE:
            return int(state)
        if _rank_blocks(query, memory, progress) != DONE:
            return DAMAGED
    state = _scan_blocks(postings, query, allowed, budget, memory, progress)
    # A local id beyond the block's documents left a score that the next query would see.
    strays: Any = np.int64(0)
    for place in range(postings.block_size, min(len(memory.scores), 1 << (8 * postings.ids.itemsize))):
        strays |= np.int64(memory.score_bits[place]) | np.int64(memory.counts[place])
    if strays:
        memory.scores[:] = 0
        memory.counts[:] = 0
        return DAMAGED
    if state == DONE:
        sort_hits(memory.top_scores, memory.top_documents, memory.top_counts, postings.id_rank, progress[HITS])
    return int(state)


@compiled
def _bound_blocks(postings: Any, query: Any, memory: Any, progress: Any) -> int:
    """Read the runs of the query's terms into entries and bounds; returns DONE, DAMAGED or TOO_SMALL."""
    bounds, entries = memory.bounds, memory.entries
    total: Any = np.int64(0)
    for term_id in query.ids:
        if term_id < 0 or term_id >= len(postings.term_runs) - 1:
            return DAMAGED
        first, last = np.int64(postings.term_runs[term_id]), np.int64(postings.term_runs[term_id + 1])
        if first > last or last > len(postings.run_gaps):
            return DAMAGED
        if postings.term_ids[term_id] < 0 or postings.term_ids[term_id + 1] > len(postings.ids):
            return DAMAGED
        if postings.term_impacts[term_id] < 0 or postings.term_impacts[term_id + 1] > len(postings.impacts):
            return DAMAGED
        total += last - first
    if total > len(postings.run_gaps):  # terms that share runs
        return DAMAGED
    if total > len(entries):
        progress[ENTRIES_NEEDED] = total
        return TOO_SMALL
    bounds[:] = 0
    memory.terms_present[:] = 0
    memory.first_entries[:] = -1
    made: Any = np.int32(0)
    # From the last term to the first: each entry is put in front of its block's list, so the first term ends up first.
    for term in range(len(query.ids) - 1, -1, -1):
        term_id = query.ids[term]
        weight, adds = query.weights[term], np.uint16(query.counted[term])
        posting_at: Any = postings.term_postings[term_id]
        id_at: Any = postings.term_ids[term_id]
        impact_at: Any = postings.term_impacts[term_id]
        block: Any = np.int64(-1)
        before: Any = block
        for run in range(np.int64(postings.term_runs[term_id]), np.int64(postings.term_runs[term_id + 1])):
            gap = postings.run_gaps[run]
            block += gap
            if gap == NO_RUN:
                continue
            # A block with two runs of one term could exceed every limit of bounds and counts.
            if block <= before or block >= len(bounds):
                return DAMAGED
            before = block
            bounds[block] += weight * np.float32(postings.run_maxima[run])
            memory.terms_present[block] += adds
            entry = entries[made]
            entry.next = memory.first_entries[block]
            entry.ids = id_at
            entry.impacts = impact_at
            entry.count = postings.run_counts[run]
            entry.term = term
            memory.first_entries[block] = made
            made += np.int32(1)
            count = np.int64(postings.run_counts[run]) + 1
            posting_at += count
            id_at += count
            impact_at += count
            if postings.compressed:
                if count == 1:
                    entry.impacts = postings.run_maxima[run]
                    impact_at -= 1
                elif count > BITMAP_ABOVE:
                    id_at -= count - BITMAP_ABOVE
        if posting_at != postings.term_postings[term_id + 1] or id_at != postings.term_ids[term_id + 1]:
            return DAMAGED
        if impact_at != postings.term_impacts[term_id + 1]:
            return DAMAGED
    return DONE


@compiled
def _rank_blocks(query: Any, memory: Any, progress: Any) -> int:
    """Sort the blocks that can hold a hit by the level of their bound; returns DONE or DAMAGED."""
    bounds, present, first_entries = memory.bounds, memory.terms_present, memory.first_entries
    required = query.required
    floor = np.float32(0) if query.exhaustive else np.float32(query.floor)
    # Bounds are summed in another order than scores; the slack exceeds the rounding errors of both.
    slack = np.float32(1) + np.float32(len(query.ids) + 1) * np.float32(2.4e-7)
    bits = bounds.view(np.int32)
    largest = np.int32(0)
    for block in range(len(bounds)):
        bounds[block] *= slack
        largest = max(largest, bits[block])
    if largest >= _INFINITY_BITS:
        return DAMAGED
    progress[LARGEST_BOUND] = largest
    starts = np.zeros(_LEVELS, np.int32)
    for block in range(len(bounds)):
        if present[block] >= required and first_entries[block] >= 0 and bounds[block] >= floor:
            starts[min((largest - bits[block]) >> _LEVEL_BITS, _LEVELS - 1)] += 1
    total: Any = np.int32(0)
    for level in range(_LEVELS):  # from the size of each level to its start
        count = starts[level]
        starts[level] = total
        total += count
    for block in range(len(bounds)):
        if present[block] >= required and first_entries[block] >= 0 and bounds[block] >= floor:
            level = min((largest - bits[block]) >> _LEVEL_BITS, _LEVELS - 1)
            memory.order[starts[level]] = block
            starts[level] += 1
    progress[BLOCKS_RANKED] = total
    return DONE


@compiled
def _add_postings(
    ids: Any,
    impacts: Any,
    compressed: bool,
    weights: Any,
    counted: Any,
    entries: Any,
    scores: Any,
    counts: Any,
    first: int,
) -> int:
    """Add the postings of a block's entries to the scores.

    Called once per block: named tuples of all arrays as arguments cost 3 % of a query.

    Returns:
        How many there are; -1 if a bitmap has another number of bits than the run has postings.
    """
    added: Any = np.int64(0)
    at: Any = first
    while at >= 0:
        entry = entries[at]
        count: Any = np.int64(entry.count) + 1
        id_at: Any = np.int64(entry.ids)
        impact_at: Any = np.int64(entry.impacts)
        weight, adds = weights[entry.term], np.uint16(counted[entry.term])
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
def _scan_blocks(postings: Any, query: Any, allowed: Any, budget: int, memory: Any, progress: Any) -> int:
    """Read ranked blocks until no later one can hold a hit or the budget is spent."""
    bounds, scores, score_bits, counts = memory.bounds, memory.scores, memory.score_bits, memory.counts
    ids, impacts, compressed, id_rank = postings.ids, postings.impacts, postings.compressed, postings.id_rank
    weights, counted, order = query.weights, query.counted, memory.order
    entries, first_entries = memory.entries, memory.first_entries
    top_scores, top_documents, top_counts = memory.top_scores, memory.top_documents, memory.top_counts
    block_size, required, floor = postings.block_size, query.required, np.float32(query.floor)
    documents, ranked, filled = len(id_rank), progress[BLOCKS_RANKED], progress[HITS]
    pause_at = progress[POSTINGS_READ] + budget
    bound_bits = bounds.view(np.int32)
    least = np.empty(1, np.float32)
    least_bits = least.view(np.int32)
    least[0] = max(floor, top_scores[0]) if filled and filled == len(top_scores) else floor
    while progress[NEXT_BLOCK] < ranked:
        if progress[POSTINGS_READ] >= pause_at:
            progress[HITS] = filled
            return PAUSED
        block = order[progress[NEXT_BLOCK]]
        if bounds[block] < least[0] and not query.exhaustive:
            progress[BLOCKS_SKIPPED] = 1
            level = min((progress[LARGEST_BOUND] - bound_bits[block]) >> _LEVEL_BITS, _LEVELS - 1)
            if level > (progress[LARGEST_BOUND] - least_bits[0]) >> _LEVEL_BITS:
                break  # the whole level is below the worst hit, and so are all later blocks
            progress[NEXT_BLOCK] += 1
            continue
        progress[NEXT_BLOCK] += 1
        added = _add_postings(ids, impacts, compressed, weights, counted, entries, scores, counts, first_entries[block])
        if added < 0:
            scores[:] = 0
            counts[:] = 0
            return DAMAGED
        progress[POSTINGS_READ] += added
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
        progress[MATCHED] += seen
        if seen and best >= least_bits[0] and len(top_scores):
            for place in range(size):
                if score_bits[place] < least_bits[0] or counts[place] < required:
                    continue
                if len(allowed) and not allowed[base + place]:
                    continue
                filled = offer(
                    top_scores,
                    top_documents,
                    top_counts,
                    id_rank,
                    filled,
                    scores[place],
                    base + place,
                    counts[place],
                )
                if filled == len(top_scores):
                    least[0] = max(floor, top_scores[0])
        scores[:block_size] = 0
        counts[:block_size] = 0
    progress[HITS] = filled
    return DONE
