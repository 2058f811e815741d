//! The numbers of the ranking. They were tuned on the cases of `bench/search/tuning.tsv`.

/// What a field counts, and how.
#[derive(Clone, Copy)]
pub struct Field {
    pub weight: f32,
    /// How much a field's length matters: BM25's b.
    pub by_length: f32,
    /// How many words it usually has. A constant instead of the average: no weight depends on
    /// another tool.
    pub usual: f32,
}

const fn field(weight: f32, by_length: f32, usual: f32) -> Field {
    Field {
        weight,
        by_length,
        usual,
    }
}

pub const NAME: Field = field(6.0, 0.6, 3.0);
pub const PATTERNS: Field = field(5.0, 0.5, 6.0);
pub const PROVIDER: Field = field(4.0, 0.0, 1.0);
/// The first sentence of a description.
pub const SUMMARY: Field = field(3.0, 0.6, 6.0);
pub const TAGS: Field = field(2.5, 0.3, 3.0);
pub const ENDPOINT: Field = field(2.0, 0.5, 4.0);
pub const HINT: Field = field(2.0, 0.5, 10.0);
pub const CATEGORY: Field = field(2.0, 0.0, 1.0);
/// The rest of a description.
pub const DESCRIPTION: Field = field(1.2, 0.6, 30.0);
pub const PARAMETERS: Field = field(0.8, 0.4, 10.0);
pub const EXAMPLES: Field = field(0.8, 0.6, 10.0);
/// The descriptions of parameters.
pub const OF_PARAMETERS: Field = field(0.5, 0.6, 60.0);

/// How soon more of the same word adds nothing: BM25's k1.
pub const SATURATION: f32 = 1.2;
/// How much it matters that a tool has the query's other words, too.
pub const COVERAGE: f32 = 0.35;
/// How much more a tool counts whose name has no other words than the query's.
pub const FIT: f32 = 0.5;
/// What is left for the tools of others where the query names a provider.
pub const OTHER_PROVIDER: f32 = 0.6;
/// What is left for a tool that only reads where the query wants a change, and the other way round.
pub const UNWISHED_READ: f32 = 0.55;
pub const UNWISHED_CHANGE: f32 = 0.55;
/// What two neighbours as one word count, next to either of them.
pub const JOINED: f32 = 0.35;
/// How much of a word's weight another word for the same thing gets.
pub const SYNONYM: f32 = 0.6;
/// How much of it a longer word, and one with a typo, or with two.
pub const BEGINNING: f32 = 0.7;
pub const TYPO: f32 = 0.8;
pub const TWO_TYPOS: f32 = 0.6;
