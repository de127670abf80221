"""Matching one query against one shard: bounds for every block first, then the blocks that can matter, best first.

1. ``bound``: the runs of the query's terms are read, not their postings. Every block gets an upper bound of the score
   of its documents, and the number of the query's terms that occur in it.
2. ``rank_blocks``: a block with fewer than ``required`` terms is dropped, the others are sorted by falling bound.
3. ``scan``: the postings of a block are added up, in the query's order, and its documents offered to the heap. It ends
   when the next bound is below the worst score of a full heap: no document after it can be a hit.

Scores are float32 sums in the query's order, so that they do not depend on which blocks are read.
"""

from typing import Any

import numpy as np

from lsr_prod.compiled import compiled
from lsr_prod.search.heap import offer

__all__ = ["bound", "rank_blocks", "scan"]

_LEVELS = 512  # of the counting sort by bounds
_NO_RUN = 255  # in run_gaps: that many blocks further, but no run


@compiled
def bound(
    term_runs: Any,
    term_postings: Any,
    run_gaps: Any,
    run_counts: Any,
    run_maxima: Any,
    query_ids: Any,
    query_weights: Any,
    counted: Any,
    bounds: Any,
    hits: Any,
    heads: Any,
    entry_next: Any,
    entry_start: Any,
    entry_term: Any,
    entry_count: Any,
) -> int:
    """Read the runs of the query's terms.

    Args:
        term_runs: and the four after it: see ``formats.shard``.
        term_postings: where a term's postings begin.
        run_gaps: steps between a term's blocks.
        run_counts: postings of a run less 1.
        run_maxima: largest impacts.
        query_ids: int32 [q]; those outside the arrays match nothing.
        query_weights: float32 [q], score of one impact unit.
        counted: uint8 [q], 1 if the term counts towards the overlap.
        bounds: float32 [blocks], out: no document of the block scores more.
        hits: uint16 [blocks], out: terms of the query that occur in the block and are counted.
        heads: int32 [blocks], out: first entry of a block, -1 for none; its entries follow in the query's order.
        entry_next: int32 [runs of all terms], out: the next entry of the same block, -1 at the end.
        entry_start: int64 [same], out: where the run's postings begin.
        entry_term: uint16 [same], out: which term of the query.
        entry_count: int32 [same], out: postings of the run.

    Returns:
        Entries made; -1 if the arrays are damaged.
    """
    blocks = len(bounds)
    bounds[:] = 0
    hits[:] = 0
    heads[:] = -1
    made = 0
    # From the last term to the first: what is put in front of a block's list last stands first.
    for term in range(len(query_ids) - 1, -1, -1):
        term_id = query_ids[term]
        if term_id < 0 or term_id >= len(term_runs) - 1:
            continue
        first, last = np.int64(term_runs[term_id]), np.int64(term_runs[term_id + 1])
        if first > last or last > len(run_gaps):
            return -1
        weight, adds = query_weights[term], np.uint16(counted[term])
        start: Any = term_postings[term_id]
        block: Any = np.int64(-1)
        for run in range(first, last):
            gap = run_gaps[run]
            block += gap
            if gap == _NO_RUN:
                continue
            if block < 0 or block >= blocks:
                return -1
            count = np.int32(run_counts[run]) + np.int32(1)
            bounds[block] += weight * np.float32(run_maxima[run])
            hits[block] += adds
            entry_next[made] = heads[block]
            entry_start[made] = start
            entry_term[made] = term
            entry_count[made] = count
            heads[block] = made
            made += 1
            start += count
        if start != term_postings[term_id + 1]:
            return -1
    return made


@compiled
def rank_blocks(
    bounds: Any, hits: Any, heads: Any, terms: int, required: int, floor: Any, order: Any
) -> tuple[int, Any]:
    """Sort the blocks that can matter by falling bound.

    Args:
        bounds: float32 [blocks], of ``bound``; raised a little here, past the rounding of sums in another order.
        hits: uint16 [blocks].
        heads: int32 [blocks].
        terms: q.
        required: shared terms that make a match.
        floor: float32; a block whose bound is below it does not matter.
        order: int32 [blocks], out.

    Returns:
        How many blocks matter, and levels in one unit of score (float32): blocks are sorted by ``int(bound * levels)``.
    """
    slack = np.float32(1) + np.float32(terms + 1) * np.float32(2.4e-7)
    largest = np.float32(0)
    for block in range(len(bounds)):
        bounds[block] *= slack
        largest = max(largest, bounds[block])
    scale = np.float32(_LEVELS - 1) / largest if largest > 0 else np.float32(0)
    places = np.zeros(_LEVELS + 1, np.int32)
    for block in range(len(bounds)):
        if hits[block] >= required and heads[block] >= 0 and bounds[block] >= floor:
            places[_LEVELS - 1 - np.int64(bounds[block] * scale)] += 1
    total: Any = 0
    for level in range(_LEVELS):  # where each level begins
        count = places[level]
        places[level] = total
        total += count
    for block in range(len(bounds)):
        if hits[block] >= required and heads[block] >= 0 and bounds[block] >= floor:
            place = _LEVELS - 1 - np.int64(bounds[block] * scale)
            order[places[place]] = block
            places[place] += 1
    return total, scale


@compiled
def _add_up(
    ids: Any,
    impacts: Any,
    query_weights: Any,
    counted: Any,
    entry: int,
    entry_next: Any,
    entry_start: Any,
    entry_term: Any,
    entry_count: Any,
    scores: Any,
    counts: Any,
) -> int:
    """Add the postings of a block's entries; returns how many, or -1 if they leave the arrays."""
    added = 0
    while entry >= 0:
        start, stop = entry_start[entry], entry_start[entry] + entry_count[entry]
        if start < 0 or stop > len(ids):
            return -1
        weight, adds = query_weights[entry_term[entry]], np.uint16(counted[entry_term[entry]])
        for posting in range(start, stop):
            place = ids[posting]
            scores[place] += weight * np.float32(impacts[posting])
            counts[place] += adds
        added += stop - start
        entry = entry_next[entry]
    return added


@compiled
def scan(
    ids: Any,
    impacts: Any,
    id_rank: Any,
    block_size: int,
    allowed: Any,
    query_weights: Any,
    counted: Any,
    required: int,
    floor: Any,
    bounds: Any,
    heads: Any,
    entry_next: Any,
    entry_start: Any,
    entry_term: Any,
    entry_count: Any,
    order: Any,
    scale: Any,
    first: int,
    ranked: int,
    exhaustive: bool,
    budget: int,
    scores: Any,
    score_bits: Any,
    counts: Any,
    top_scores: Any,
    top_documents: Any,
    top_counts: Any,
    filled: int,
) -> tuple[int, int, int, int, bool]:
    """Read blocks ``order[first:ranked]`` until none can matter or the budget is spent.

    Args:
        ids: places in the block.
        impacts: impacts.
        id_rank: see ``heap``.
        block_size: documents in a block.
        allowed: uint8 [N], 1 for documents that may be found; empty: all.
        query_weights: float32 [q].
        counted: uint8 [q].
        required: shared terms that make a match, 1 or more.
        floor: float32, the least score of a hit.
        bounds: of ``rank_blocks``, and so are the six after it.
        heads: first entries.
        entry_next: of ``bound``.
        entry_start: of ``bound``.
        entry_term: of ``bound``.
        entry_count: of ``bound``.
        order: blocks by falling bound.
        scale: levels in one unit of score.
        first: where to go on.
        ranked: how many there are.
        exhaustive: read all of them, so that the matches are counted.
        budget: postings after which to stop, at the end of a block.
        scores: float32 [places], zeros before and after; ``places`` is 256 or 65,536.
        score_bits: the same memory as int32: scores are not negative, so that their bits rise as they do.
        counts: uint16 [places], zeros before and after.
        top_scores: float32 [k], the heap.
        top_documents: int64 [k], ordinals.
        top_counts: uint16 [k], shared terms.
        filled: places of the heap that are filled.

    Returns:
        Documents that match in the blocks read (-1: the arrays are damaged), filled places of the heap, where to go on,
        postings read, and whether blocks were left out because no document of them can be a hit; if so and the budget
        is not spent, there is nothing to go on with.
    """
    documents, matched, read = len(id_rank), 0, 0
    least = np.empty(1, np.float32)
    least_bits = least.view(np.int32)
    least[0] = max(floor, top_scores[0]) if filled and filled == len(top_scores) else floor
    skipped = False
    while first < ranked and read < budget:
        block = order[first]
        if bounds[block] < least[0] and not exhaustive:
            skipped = True
            if np.int64(bounds[block] * scale) < np.int64(least[0] * scale):
                break  # so it is with every block after it
            first += 1
            continue
        first += 1
        added = _add_up(
            ids,
            impacts,
            query_weights,
            counted,
            heads[block],
            entry_next,
            entry_start,
            entry_term,
            entry_count,
            scores,
            counts,
        )
        if added < 0:
            scores[:] = 0
            counts[:] = 0
            return -1, 0, first, read, skipped
        read += added
        base = np.int64(block) * block_size
        size: Any = min(block_size, documents - base)
        best = np.int32(0)
        if len(allowed):
            for place in range(size):
                matched += (counts[place] >= required) & allowed[base + place]
                best = max(best, score_bits[place])
        else:
            for place in range(size):
                matched += counts[place] >= required
                best = max(best, score_bits[place])
        if best >= least_bits[0] and len(top_scores):
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
    return matched, filled, first, read, skipped
