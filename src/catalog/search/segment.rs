//! The words of some tools, with their weights: one part of the index, built once.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde_json::Value;

use super::similar::Vocabulary;
use super::stem::stem;
use super::text::{is_stop_word, squeezed, words};
use super::weights::{self, Field};
use crate::catalog::{Invocation, Tool};

/// Bytes of a description that are read, and of a parameter's: enough for what it says, and an MCP
/// server can't fill the index.
const LONGEST_DESCRIPTION: usize = 2_000;
const LONGEST_OF_PARAMETER: usize = 300;
const MOST_PARAMETERS: usize = 200;
const MOST_EXAMPLES: usize = 20;
const LONGEST_EXAMPLE: usize = 500;

/// A word's weight in a tool, from 0 to 1.
#[derive(Clone, Copy)]
pub struct Posting {
    pub tool: u32,
    pub weight: f32,
    /// The share of the tool's name that the word is.
    pub of_name: f32,
}

pub struct Segment {
    pub tools: Vec<Arc<Tool>>,
    /// Whether each tool changes nothing, where that is known.
    pub only_reads: Vec<Option<bool>>,
    terms: HashMap<Arc<str>, u32, RandomState>,
    /// Where the postings of each term begin, and one more for the end of the last.
    starts: Vec<u32>,
    postings: Vec<Posting>,
    /// Names without separators, with and without their provider.
    names: HashMap<String, Vec<u32>, RandomState>,
    /// The tools of each provider, by its name without separators.
    providers: HashMap<String, Vec<u32>, RandomState>,
    /// Tools whose authors say what they are asked for with.
    patterned: Vec<u32>,
    pub vocabulary: Vocabulary,
}

impl Segment {
    pub fn new(tools: Vec<Arc<Tool>>) -> Self {
        let mut builder = Builder::default();
        let mut names: HashMap<String, Vec<u32>, RandomState> = HashMap::default();
        let mut providers: HashMap<String, Vec<u32>, RandomState> = HashMap::default();
        let mut patterned = Vec::new();
        for (place, tool) in tools.iter().enumerate() {
            let place = place as u32;
            builder.read(place, tool);
            let whole = squeezed(&tool.name);
            let own = squeezed(own_name(tool));
            if own != whole {
                names.entry(own).or_default().push(place);
            }
            names.entry(whole).or_default().push(place);
            let provider = squeezed(&tool.provider.name);
            providers.entry(provider).or_default().push(place);
            if tool.invocation.has_patterns() {
                patterned.push(place);
            }
        }
        let (terms, starts, postings, vocabulary) = builder.finish();
        let only_reads = tools.iter().map(|tool| tool.only_reads());
        Segment {
            only_reads: only_reads.collect(),
            tools,
            terms,
            starts,
            postings,
            names,
            providers,
            patterned,
            vocabulary,
        }
    }

    pub fn term(&self, word: &str) -> Option<u32> {
        self.terms.get(word).copied()
    }

    pub fn postings(&self, term: u32) -> &[Posting] {
        let (from, to) = (self.starts[term as usize], self.starts[term as usize + 1]);
        &self.postings[from as usize..to as usize]
    }

    /// The tools that this is the name of, whatever its separators.
    pub fn named(&self, squeezed: &str) -> &[u32] {
        self.names.get(squeezed).map_or(&[], Vec::as_slice)
    }

    /// The tools of the provider of this name.
    pub fn of_provider(&self, squeezed: &str) -> &[u32] {
        self.providers.get(squeezed).map_or(&[], Vec::as_slice)
    }

    /// The tools that a query in these words means, by their authors' own patterns.
    pub fn meant_by<'a>(&'a self, query: &'a str) -> impl Iterator<Item = u32> + 'a {
        let patterned = self.patterned.iter().copied();
        patterned.filter(move |place| {
            let tool = &self.tools[*place as usize];
            tool.invocation.is_meant_by(query)
        })
    }
}

pub fn own_name(tool: &Tool) -> &str {
    tool.name.split_once(':').map_or(&tool.name, |(_, own)| own)
}

#[derive(Default)]
struct Builder {
    terms: HashMap<Arc<str>, u32, RandomState>,
    /// Words as they stand in texts: each is stemmed once.
    seen: HashMap<String, u32, RandomState>,
    vocabulary: Vocabulary,
    /// (term, posting), tool after tool.
    found: Vec<(u32, Posting)>,
    /// Of the tool that is read: each term's weight, and which terms have one.
    weights: Vec<f32>,
    touched: Vec<u32>,
    /// The terms of its name.
    name: Vec<u32>,
    /// The terms of the field that is read.
    field: Vec<u32>,
}

impl Builder {
    fn read(&mut self, place: u32, tool: &Tool) {
        self.name(tool);
        self.texts(&weights::PROVIDER, [tool.provider.name.as_str()]);
        self.texts(&weights::CATEGORY, tool.category());
        self.texts(&weights::TAGS, tool.tags.iter().map(String::as_str));
        let (summary, rest) = parts(clip(&tool.description, LONGEST_DESCRIPTION));
        self.texts(&weights::SUMMARY, [summary]);
        self.texts(&weights::DESCRIPTION, [rest]);
        self.texts(&weights::HINT, tool.hint.as_deref());
        if let Invocation::Http(http) = &tool.invocation {
            self.texts(&weights::ENDPOINT, [http.endpoint.as_str()]);
        }
        let patterns = tool.invocation.said_patterns();
        self.texts(&weights::PATTERNS, patterns.iter().map(String::as_str));
        let parameters = tool.input_schema().get("properties");
        let parameters = parameters.and_then(Value::as_object).into_iter().flatten();
        let parameters = parameters.take(MOST_PARAMETERS);
        self.texts(
            &weights::PARAMETERS,
            parameters.clone().map(|(name, _)| name.as_str()),
        );
        let described = parameters.filter_map(|(_, schema)| schema["description"].as_str());
        let described = described.map(|text| parts(clip(text, LONGEST_OF_PARAMETER)).0);
        self.texts(&weights::OF_PARAMETERS, described);
        let mut examples = String::new();
        for example in tool.examples.iter().take(MOST_EXAMPLES) {
            gather(example, &mut examples);
        }
        self.texts(&weights::EXAMPLES, [examples.as_str()]);

        for term in self.touched.drain(..) {
            let weight = std::mem::take(&mut self.weights[term as usize]);
            let named = self.name.contains(&term);
            let posting = Posting {
                tool: place,
                weight: weight / (weight + weights::SATURATION),
                of_name: if named {
                    1.0 / self.name.len() as f32
                } else {
                    0.0
                },
            };
            self.found.push((term, posting));
        }
    }

    /// Each word of a name, and each two neighbours as one: `pullrequest` for `pull_request`. The
    /// provider's name isn't part of it, wherever it stands.
    fn name(&mut self, tool: &Tool) {
        let mut parts: Vec<String> = Vec::new();
        words(own_name(tool), |word| parts.push(word.to_owned()));
        if parts.len() > 1 {
            parts.retain(|word| *word != tool.provider.name);
        }
        self.field.clear();
        self.name.clear();
        for word in &parts {
            if let Some(term) = self.term(word, true) {
                self.field.push(term);
                if !self.name.contains(&term) && !is_stop_word(word) {
                    self.name.push(term);
                }
            }
        }
        self.weigh(&weights::NAME);
        for pair in parts.windows(2) {
            let mut joined = pair.concat();
            stem(&mut joined);
            let term = self.intern(&joined);
            self.field.push(term);
        }
        self.weigh(&weights::NAME);
    }

    fn texts<'t>(&mut self, field: &Field, texts: impl IntoIterator<Item = &'t str>) {
        let mut ids = std::mem::take(&mut self.field);
        ids.clear();
        for text in texts {
            words(text, |word| ids.extend(self.term(word, false)));
        }
        self.field = ids;
        self.weigh(field);
    }

    /// Adds the field to the tool's weights.
    fn weigh(&mut self, field: &Field) {
        let length = self.field.len() as f32 / field.usual;
        let share = field.weight / (1.0 - field.by_length + field.by_length * length);
        for term in self.field.drain(..) {
            let weight = &mut self.weights[term as usize];
            if *weight == 0.0 {
                self.touched.push(term);
            }
            *weight += share;
        }
    }

    fn term(&mut self, word: &str, of_name: bool) -> Option<u32> {
        if !of_name && (is_stop_word(word) || is_number(word)) {
            return None;
        }
        if let Some(known) = self.seen.get(word) {
            return Some(*known);
        }
        let mut stemmed = word.to_owned();
        stem(&mut stemmed);
        let term = self.intern(&stemmed);
        self.vocabulary.add(word, term);
        self.seen.insert(word.to_owned(), term);
        Some(term)
    }

    fn intern(&mut self, word: &str) -> u32 {
        if let Some(known) = self.terms.get(word) {
            return *known;
        }
        let term = self.terms.len() as u32;
        self.terms.insert(word.into(), term);
        self.weights.push(0.0);
        term
    }

    #[allow(clippy::type_complexity)]
    fn finish(
        mut self,
    ) -> (
        HashMap<Arc<str>, u32, RandomState>,
        Vec<u32>,
        Vec<Posting>,
        Vocabulary,
    ) {
        // Stable: the tools of a term stay in their order.
        self.found.sort_by_key(|(term, _)| *term);
        let mut starts = vec![0; self.terms.len() + 1];
        for (term, _) in &self.found {
            starts[*term as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let postings = self.found.into_iter().map(|(_, posting)| posting).collect();
        self.vocabulary.finish();
        (self.terms, starts, postings, self.vocabulary)
    }
}

/// Numbers of descriptions are examples and limits.
fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The first sentence, and the rest. Summaries of OpenAPI documents end with a dash.
fn parts(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let ends = [" — ", ". ", ".\n", "\n\n"];
    let end = ends.iter().filter_map(|end| text.find(end)).min();
    text.split_at(end.unwrap_or(text.len()))
}

fn clip(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The texts of an example, whatever its form.
fn gather(value: &Value, into: &mut String) {
    if into.len() > LONGEST_EXAMPLE * MOST_EXAMPLES {
        return;
    }
    match value {
        Value::String(text) => {
            into.push_str(clip(text, LONGEST_EXAMPLE));
            into.push(' ');
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, into)),
        Value::Object(members) => members.values().for_each(|item| gather(item, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
