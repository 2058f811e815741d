//! Exchanges, made from a seed: what a caller sends, and what the upstream answers.

use super::answers::{self, Made};
use super::caller::Step;
use super::requests::{self, Request};
use super::scripted::{Answer, Then, When};

/// SplitMix64: the same numbers on each machine.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64, index: u64) -> Self {
        Rng(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// One exchange, or several that are pipelined.
pub struct Case {
    /// In a few words, for a failure.
    pub what: String,
    pub steps: Vec<Step>,
    /// Which requests have the method HEAD.
    pub heads: Vec<bool>,
    pub script: Vec<Answer>,
    /// On a connection of its own.
    pub is_fresh: bool,
    /// All requests may take the short way.
    pub is_plain: bool,
    /// The exchange breaks off while bytes are under way, so how many of them arrive depends on
    /// timing: one side's bytes begin with the other's.
    pub breaks_off: bool,
}

/// The exchange with this number. `id` is in each path, so that log records can be found by it.
pub fn case(seed: u64, index: u64, lane: usize, id: &str) -> Case {
    let mut rng = Rng::new(seed, index);
    let make = Maker { lane, id };
    let mut case = match index % 20 {
        0..=3 => make.plain(&mut rng),
        4..=6 => make.pipelined(&mut rng),
        7..=9 => make.odd_request(&mut rng),
        10..=12 => make.odd_answer(&mut rng),
        13 | 14 => make.split_request(&mut rng, index as usize / 20),
        15 => make.split_answer(&mut rng, index as usize / 20),
        16 => make.cut_request(&mut rng, index as usize / 20),
        17 => make.cut_answer(&mut rng, index as usize / 20),
        18 => make.early(&mut rng),
        _ => make.not_plain(&mut rng),
    };
    case.is_fresh |= rng.chance(20);
    case
}

struct Maker<'a> {
    lane: usize,
    id: &'a str,
}

impl Maker<'_> {
    fn request(&self, rng: &mut Rng) -> Request {
        Request::plain(rng, self.lane, self.id)
    }

    /// Requests and answers that are all there, one after another.
    fn whole(&self, requests: Vec<Request>, made: Vec<Made>) -> Case {
        let what: Vec<String> = requests
            .iter()
            .map(|request| request.what.clone())
            .chain(made.iter().map(|made| format!("-> {}", made.what)))
            .collect();
        let bytes: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
        Case {
            what: what.join("; "),
            steps: vec![Step::Send(bytes), Step::Read(requests.len())],
            heads: requests.iter().map(|r| r.method.trim() == "HEAD").collect(),
            breaks_off: made.iter().any(|made| made.breaks_off),
            script: made.into_iter().map(|made| made.answer).collect(),
            is_fresh: false,
            is_plain: requests.iter().all(|r| r.is_plain),
        }
    }

    fn plain(&self, rng: &mut Rng) -> Case {
        let request = self.request(rng);
        let made = answers::good(rng);
        self.whole(vec![request], vec![made])
    }

    fn pipelined(&self, rng: &mut Rng) -> Case {
        let count = 2 + rng.below(3);
        let mut all = Vec::new();
        let mut made = Vec::new();
        for n in 0..count {
            let request = match rng.below(10) {
                0 => requests::not_plain(rng, self.lane, self.id),
                1 => {
                    all.push(requests::refused(rng, self.lane, self.id));
                    continue;
                }
                _ => self.request(rng),
            };
            let mut answer = answers::good(rng);
            // A connection that is closed without a word would be used by the next request, or
            // not: that is a matter of timing.
            if n + 1 < count && answer.answer.then != Then::Keep {
                answer = answers::closing(rng);
            }
            all.push(request);
            made.push(answer);
        }
        let mut case = self.whole(all, made);
        if rng.chance(40)
            && let Step::Send(bytes) = case.steps[0].clone()
        {
            let at = 1 + rng.below(bytes.len() - 1);
            case.steps = split(&bytes, &[at]);
            case.steps.push(Step::Read(count));
        }
        case
    }

    fn odd_request(&self, rng: &mut Rng) -> Case {
        if rng.chance(8) {
            let request = requests::whole_url(rng, self.lane, self.id);
            let mut case = self.whole(vec![request], vec![answers::good(rng)]);
            case.is_fresh = true;
            return case;
        }
        let mut request = self.request(rng);
        request.make_odd(rng);
        let made = answers::good(rng);
        let mut all = vec![request];
        let mut answered = vec![made];
        // What follows must not be read as a part of it.
        if rng.chance(30) {
            all.push(self.request(rng));
            answered.push(answers::good(rng));
            if answered[0].answer.then != Then::Keep {
                answered[0] = answers::closing(rng);
            }
        }
        self.whole(all, answered)
    }

    fn odd_answer(&self, rng: &mut Rng) -> Case {
        let request = self.request(rng);
        let made = answers::odd(rng);
        let mut case = self.whole(vec![request], vec![made.clone()]);
        // A kept connection that closes without an answer is replaced, a new one isn't; and each
        // way has its own. So a second request gets nothing, either.
        if made.answer.pieces.concat().is_empty() {
            case.script = vec![made.answer; 3];
        }
        case
    }

    /// One request in two writes, at each of its bytes in turn.
    fn split_request(&self, rng: &mut Rng, turn: usize) -> Case {
        let request = match rng.chance(70) {
            true => self.request(rng),
            false => requests::not_plain(rng, self.lane, self.id),
        };
        let made = answers::good(rng);
        let bytes = request.bytes();
        let at = 1 + turn % (bytes.len() - 1);
        let mut case = self.whole(vec![request], vec![made]);
        case.what = format!("split at byte {at}: {}", case.what);
        case.steps = split(&bytes, &[at]);
        case.steps.push(Step::Read(1));
        case
    }

    fn split_answer(&self, rng: &mut Rng, turn: usize) -> Case {
        let request = self.request(rng);
        let mut made = match rng.chance(70) {
            true => answers::good(rng),
            false => answers::odd(rng),
        };
        let bytes = made.answer.pieces.concat();
        if bytes.len() > 2 {
            let at = 1 + turn % (bytes.len() - 1);
            made.what = format!("in pieces, at byte {at}: {}", made.what);
            made.answer.pieces = vec![bytes[..at].to_vec(), bytes[at..].to_vec()];
        }
        self.whole(vec![request], vec![made])
    }

    /// The caller stops in the middle: of the head, or of the body.
    fn cut_request(&self, rng: &mut Rng, turn: usize) -> Case {
        let request = self.request(rng);
        let made = answers::good(rng);
        let bytes = request.bytes();
        let at = 1 + turn % (bytes.len() - 1);
        let body = at.saturating_sub(bytes.len() - request.body.len());
        let mut case = self.whole(vec![request], vec![made]);
        case.what = format!("cut at byte {at}: {}", case.what);
        case.is_fresh = true;
        case.breaks_off = true;
        case.steps = vec![Step::Send(bytes[..at].to_vec())];
        if body > 0 {
            case.steps.push(Step::UpstreamHas(1, body));
        }
        case.steps.push(match rng.chance(50) {
            true => Step::EndWriting,
            false => Step::Leave,
        });
        case
    }

    /// The upstream closes in the middle of its answer.
    fn cut_answer(&self, rng: &mut Rng, turn: usize) -> Case {
        let request = self.request(rng);
        let is_post = request.method == "POST";
        let mut made = answers::good(rng);
        let bytes = made.answer.pieces.concat();
        let at = turn % bytes.len();
        made.what = format!("closes at byte {at}: {}", made.what);
        made.answer.pieces = vec![bytes[..at].to_vec()];
        let head = super::scripted::find(&bytes, b"\r\n\r\n").map_or(0, |at| at + 4);
        made.answer.then = match rng.chance(30) && at < head && !bytes.starts_with(b"HTTP/1.1 1") {
            true => Then::Reset,
            false => Then::Close,
        };
        made.breaks_off = true;
        let mut case = self.whole(vec![request], vec![made.clone()]);
        // A request that may be sent again gets the same answer again.
        if !is_post {
            case.script = vec![made.answer; 3];
        }
        case
    }

    /// An answer before the request is whole, and a caller that leaves while it waits.
    fn early(&self, rng: &mut Rng) -> Case {
        let mut request = self.request(rng);
        if rng.chance(50) {
            let mut case = self.whole(vec![request], vec![answers::good(rng)]);
            case.what = format!("leaves while it waits: {}", case.what);
            case.script[0].when = When::Never;
            case.is_fresh = true;
            case.breaks_off = true;
            case.steps.pop();
            case.steps.push(Step::UpstreamHas(1, 0));
            case.steps.push(Step::Leave);
            return case;
        }
        request.with_body(vec![b'b'; 40]);
        let made = answers::closing(rng);
        let bytes = request.bytes();
        let rest = 1 + rng.below(39);
        let mut case = self.whole(vec![request], vec![made]);
        case.what = format!("answered before {rest} bytes of the body: {}", case.what);
        case.script[0].when = When::Early(40 - rest);
        case.is_fresh = true;
        case.breaks_off = true;
        let (first, second) = bytes.split_at(bytes.len() - rest);
        case.steps = vec![
            Step::Send(first.to_vec()),
            Step::Read(1),
            Step::Send(second.to_vec()),
            Step::EndWriting,
        ];
        case
    }

    /// What only Pingora serves: both ways must hand it over, and go on after it.
    fn not_plain(&self, rng: &mut Rng) -> Case {
        let (mut all, mut answered) = (Vec::new(), Vec::new());
        if rng.chance(50) {
            all.push(self.request(rng));
            answered.push(answers::keeping(rng));
        }
        if rng.chance(30) {
            // Answered by ati itself.
            all.push(requests::refused(rng, self.lane, self.id));
        } else {
            all.push(requests::not_plain(rng, self.lane, self.id));
            answered.push(answers::keeping(rng));
        }
        all.push(self.request(rng));
        answered.push(answers::good(rng));
        self.whole(all, answered)
    }
}

fn split(bytes: &[u8], places: &[usize]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut from = 0;
    for at in places.iter().copied().chain([bytes.len()]) {
        steps.push(Step::Send(bytes[from..at].to_vec()));
        steps.push(Step::Gap);
        from = at;
    }
    steps.pop();
    steps
}
