//! The index of tools: the same ranking on the command line, behind `GET /tools`, for MCP clients
//! and for `ati assist`.
//!
//! BM25F: the words of a tool's fields, each field with a weight of its own, and rare words before
//! common ones. Names come before everything else, then the patterns of a tool's author. A word
//! that is nowhere is taken for the beginning of another, or for a typo.
//!
//! How rare a word is gets counted among the tools that the caller may use: neither what it finds
//! nor the order depends on others.

mod catalog;
mod query;
mod segment;
mod similar;
mod stem;
mod synonyms;
#[cfg(test)]
mod tests;
mod text;
mod weights;
mod wish;

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::Tool;
use crate::auth::Scopes;
use query::{Query, Term};
use segment::{Posting, Segment};
use wish::Wish;

/// Results of one search.
pub const MOST: usize = 20;
/// What a prompt gets, of all the tools that there are.
pub const MOST_IN_PROMPT: usize = 50;

/// For a query that is a tool's name, that has one in it, or that says a pattern of a tool's
/// author. Far above what words can add up to.
const NAMED: f32 = 3_000.0;
const MENTIONED: f32 = 2_000.0;
const SAID: f32 = 1_000.0;

/// Words that resemble a word of the query, at most.
const MOST_SIMILAR: usize = 12;
/// Sets of scopes whose tools are kept at hand.
const MOST_CALLERS: usize = 128;

/// The tools of a catalogue by their words.
pub struct Index {
    segments: Vec<Part>,
    tools: usize,
    /// The tools that a caller may use, by its scopes: asking each tool would take longer than the
    /// rest of a search.
    visible: Cache<Scopes, Arc<Visible>>,
}

/// A segment, and the number of its first tool.
struct Part {
    first: u32,
    segment: Arc<Segment>,
}

/// A set of tools.
struct Visible {
    bits: Box<[u64]>,
    count: usize,
}

impl Visible {
    fn has(&self, tool: u32) -> bool {
        self.bits[tool as usize / 64] >> (tool % 64) & 1 == 1
    }
}

/// What a query's words add up to in one tool.
#[derive(Clone, Copy, Default)]
struct Tally {
    points: f32,
    /// How rare the words that it has are, together.
    covered: f32,
    /// How much of its name the query has, from 0 to 1.
    fit: f32,
    /// What the term that is being added has counted already.
    of_term: f32,
    fit_of_term: f32,
    /// The query names its provider.
    named: bool,
}

impl Tally {
    fn score(&self, total: f32, named: bool) -> f32 {
        let covered = match self.covered > 0.0 {
            true => (self.covered / total).powf(weights::COVERAGE),
            // Only two neighbours as one word.
            false => weights::JOINED,
        };
        let fit = 1.0 + weights::FIT * self.fit;
        let provider = match named && !self.named {
            true => weights::OTHER_PROVIDER,
            false => 1.0,
        };
        self.points * covered * fit * provider
    }
}

/// What a word of the query leads to: a term of a segment.
struct Lead<'i> {
    part: &'i Part,
    term: u32,
    factor: f32,
}

impl Index {
    pub fn new(segments: Vec<Arc<Segment>>) -> Self {
        let mut first = 0;
        let segments = segments.into_iter().map(|segment| {
            let part = Part { first, segment };
            first += part.segment.tools.len() as u32;
            part
        });
        let segments: Vec<Part> = segments.collect();
        Index {
            tools: first as usize,
            segments,
            visible: Cache::new(MOST_CALLERS),
        }
    }

    /// The best matches among the tools that these scopes allow and `wanted` says yes to, best
    /// first; the same query always has the same answer. `allowed` depends on nothing but the
    /// scopes: its answers are kept.
    pub fn search(
        &self,
        text: &str,
        scopes: &Scopes,
        allowed: impl Fn(&Tool) -> bool,
        wanted: impl Fn(&Tool) -> bool,
        limit: usize,
    ) -> Vec<&Arc<Tool>> {
        let query = Query::new(text);
        let visible = self.visible(scopes, allowed);
        let mut tallies = vec![Tally::default(); self.tools];
        let mut total = 0.0;
        for term in &query.terms {
            total += self.add(term, &visible, &mut tallies);
        }
        let named = self.mark_providers(&query, &visible, &mut tallies);
        let mut scores = self.scores(&tallies, total, named, query.wish);
        self.put_first(&query, &mut scores);
        self.best(&scores, &visible, wanted, limit)
    }

    /// Adds what a term counts in each tool. Returns how rare the term is.
    fn add(&self, term: &Term, visible: &Visible, tallies: &mut [Tally]) -> f32 {
        let own = self.exactly(&term.word, 1.0);
        let rarity = self.rarity(&own, visible);
        if term.joined {
            if let Some(rarity) = rarity {
                let by = rarity * weights::JOINED;
                each(&own, |posting, tool, _| {
                    tallies[tool].points += posting.weight * by
                });
            }
            return 0.0;
        }
        let mut groups: Vec<(f32, Vec<Lead<'_>>)> = Vec::new();
        for synonym in &term.synonyms {
            let leads = self.exactly(synonym, weights::SYNONYM);
            if let Some(rare) = self.rarity(&leads, visible) {
                // A rarer word for the same thing isn't a better one.
                groups.push((rarity.map_or(rare, |own| own.min(rare)), leads));
            }
        }
        groups.extend(rarity.map(|rarity| (rarity, own)));
        if groups.is_empty() {
            groups.extend(self.similar(&term.written, visible));
        }
        // Of several words for the same thing the best counts.
        for (rarity, leads) in &groups {
            each(leads, |posting, tool, factor| {
                let points = posting.weight * factor * rarity;
                let tally = &mut tallies[tool];
                if points > tally.of_term {
                    tally.points += points - tally.of_term;
                    tally.of_term = points;
                }
                let fit = posting.of_name * factor;
                if fit > tally.fit_of_term {
                    tally.fit += fit - tally.fit_of_term;
                    tally.fit_of_term = fit;
                }
            });
        }
        let most = groups.iter().map(|(rarity, _)| *rarity).fold(0.0, f32::max);
        for (_, leads) in &groups {
            each(leads, |_, tool, _| {
                let tally = &mut tallies[tool];
                if tally.of_term > 0.0 {
                    tally.covered += most;
                    tally.of_term = 0.0;
                    tally.fit_of_term = 0.0;
                }
            });
        }
        most
    }

    fn scores(&self, tallies: &[Tally], total: f32, named: bool, wish: Option<Wish>) -> Vec<f32> {
        let mut scores = vec![0.0; tallies.len()];
        for part in &self.segments {
            for (place, only_reads) in part.segment.only_reads.iter().enumerate() {
                let place = part.first as usize + place;
                let tally = &tallies[place];
                if tally.points > 0.0 {
                    let wished = match (wish, only_reads) {
                        (Some(Wish::Read), Some(false)) => weights::UNWISHED_CHANGE,
                        (Some(Wish::Change), Some(true)) => weights::UNWISHED_READ,
                        _ => 1.0,
                    };
                    scores[place] = tally.score(total, named) * wished;
                }
            }
        }
        scores
    }

    /// Marks the tools of providers that the query names. Returns whether there are any.
    fn mark_providers(&self, query: &Query<'_>, visible: &Visible, tallies: &mut [Tally]) -> bool {
        let mut any = false;
        for term in &query.terms {
            for part in &self.segments {
                for place in part.segment.of_provider(&term.written) {
                    let tool = part.first + place;
                    if visible.has(tool) {
                        tallies[tool as usize].named = true;
                        any = true;
                    }
                }
            }
        }
        any
    }

    /// Puts tools first whose name the query is or has, then those whose author's patterns it says.
    fn put_first(&self, query: &Query<'_>, scores: &mut [f32]) {
        for (whole, name) in query.names() {
            for part in &self.segments {
                for place in part.segment.named(&name) {
                    let tool = &part.segment.tools[*place as usize];
                    let full = tool.name.eq_ignore_ascii_case(query.text);
                    scores[(part.first + place) as usize] += match (full, whole) {
                        (true, _) => 2.0 * NAMED,
                        (_, true) => NAMED,
                        (_, false) => MENTIONED,
                    };
                }
            }
        }
        for part in &self.segments {
            for place in part.segment.meant_by(query.text) {
                scores[(part.first + place) as usize] += SAID;
            }
        }
    }

    /// Where a word leads to.
    fn exactly(&self, word: &str, factor: f32) -> Vec<Lead<'_>> {
        let leads = self.segments.iter().filter_map(|part| {
            let term = part.segment.term(word)?;
            Some(Lead { part, term, factor })
        });
        leads.collect()
    }

    /// The words that resemble a word that the caller's tools don't have, the most similar ones.
    /// They are as rare as all of them together: an odd one isn't what was meant.
    fn similar(&self, word: &str, visible: &Visible) -> Option<(f32, Vec<Lead<'_>>)> {
        let mut leads: Vec<Lead<'_>> = Vec::new();
        for part in &self.segments {
            part.segment.vocabulary.similar(word, |similar| {
                leads.push(Lead {
                    part,
                    term: similar.term,
                    factor: similar.factor,
                });
            });
        }
        leads.retain(|lead| self.rarity(std::slice::from_ref(lead), visible).is_some());
        leads.sort_by(|a, b| b.factor.total_cmp(&a.factor));
        let best = leads.first()?.factor;
        leads.retain(|lead| lead.factor == best);
        leads.truncate(MOST_SIMILAR);
        Some((self.rarity(&leads, visible)?, leads))
    }

    /// How rare a word is among the caller's tools: BM25's idf. None where none has it.
    fn rarity(&self, leads: &[Lead<'_>], visible: &Visible) -> Option<f32> {
        let tools = leads.iter().map(|lead| {
            let postings = lead.part.segment.postings(lead.term);
            if visible.count == self.tools {
                return postings.len();
            }
            let seen = |posting: &&Posting| visible.has(lead.part.first + posting.tool);
            postings.iter().filter(seen).count()
        });
        let having: usize = tools.sum();
        let lacking = (visible.count - having.min(visible.count)) as f32;
        (having > 0).then(|| (1.0 + (lacking + 0.5) / (having as f32 + 0.5)).ln())
    }

    /// The tools of these scopes.
    fn visible(&self, scopes: &Scopes, allowed: impl Fn(&Tool) -> bool) -> Arc<Visible> {
        if let Some(known) = self.visible.get(scopes) {
            return known;
        }
        let mut bits = vec![0_u64; self.tools.div_ceil(64)].into_boxed_slice();
        let mut count = 0;
        for part in &self.segments {
            for (place, tool) in part.segment.tools.iter().enumerate() {
                if allowed(tool) {
                    let tool = part.first as usize + place;
                    bits[tool / 64] |= 1 << (tool % 64);
                    count += 1;
                }
            }
        }
        let visible = Arc::new(Visible { bits, count });
        self.visible.insert(scopes.clone(), visible.clone());
        visible
    }

    /// The tools with the highest scores; of two with the same, the one whose name comes first.
    fn best(
        &self,
        scores: &[f32],
        visible: &Visible,
        wanted: impl Fn(&Tool) -> bool,
        limit: usize,
    ) -> Vec<&Arc<Tool>> {
        let mut best: Vec<(f32, &Arc<Tool>)> = Vec::with_capacity(limit + 1);
        for part in &self.segments {
            let first = part.first as usize;
            let scores = &scores[first..first + part.segment.tools.len()];
            for (place, score) in scores.iter().enumerate() {
                let full = best.len() == limit;
                if *score <= 0.0 || (full && best.last().is_none_or(|(last, _)| score < last)) {
                    continue;
                }
                let tool = &part.segment.tools[place];
                if !visible.has(part.first + place as u32) || !wanted(tool) {
                    continue;
                }
                let at = best.partition_point(|(known, other)| {
                    known.total_cmp(score).is_gt() || (known == score && other.name < tool.name)
                });
                best.insert(at, (*score, tool));
                best.truncate(limit);
            }
        }
        best.into_iter().map(|(_, tool)| tool).collect()
    }
}

/// Each posting of these terms, with its tool's number and the term's factor.
fn each(leads: &[Lead<'_>], mut take: impl FnMut(&Posting, usize, f32)) {
    for lead in leads {
        for posting in lead.part.segment.postings(lead.term) {
            take(
                posting,
                (lead.part.first + posting.tool) as usize,
                lead.factor,
            );
        }
    }
}
