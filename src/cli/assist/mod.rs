//! `ati assist`: a question about tools. It is answered by the proxy, or here by a language model
//! or, without one, by the search.

pub mod backend;
mod examples;
mod index;
mod listed;
mod plan;
mod remote;
mod variables;

use std::path::PathBuf;

use clap::ValueEnum as _;
use serde_json::json;
use tracing::{debug, warn};

use super::local::Local;
use super::remote::Remote;
use super::run::brief;
use super::skill::registry_here;
use super::{Format, output, runtime};
use crate::assist::llm::{Answer, NO_TEXT, Question};
use crate::assist::{Context, Screen, Subject, cut_note, is_known, mentioned, prompt};
use crate::catalog::Tool;
use crate::error::{Code, Failure, HelpError};
use crate::text::clip_chars;
use backend::{Choice, Chosen, Kind};
pub use examples::EXAMPLES;
pub use variables::VARIABLES;

/// Tools whose usage follows an answer.
const MOST_CARDS: usize = 5;

#[derive(clap::Args)]
#[command(
    override_usage = "ati assist [OPTIONS] [TOOL|PROVIDER] <QUESTION>...",
    after_help = "A first word that names a tool or a provider limits the question to it.\n\
                  Who answers: the proxy of ATI_PROXY_URL; else a language model, with \
                  CEREBRAS_API_KEY or the key of _llm.toml, ANTHROPIC_API_KEY, or an Ollama; else \
                  the search over tools. Commands that wouldn't run are left out of an answer."
)]
pub struct Args {
    /// Answer with a plan of tool calls, as JSON; made on this machine, never by the proxy
    #[arg(long)]
    plan: bool,

    /// Write the plan to this file, for `ati plan execute`
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Ask the local language model (OLLAMA_HOST), whatever keys there are
    #[arg(long)]
    local: bool,

    /// The question, perhaps with the name of a tool or provider before it
    #[arg(value_name = "QUESTION", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<String>,
}

/// The command line, with the options that came after the first word.
struct CommandLine {
    words: Vec<String>,
    plan: bool,
    save: Option<PathBuf>,
    local: bool,
    format: Option<Format>,
    verbose: bool,
    /// What is wrong with an option that came after the first word.
    fault: Option<String>,
}

impl Args {
    /// Options count after the question, too.
    fn read(&self) -> CommandLine {
        let mut asked = CommandLine {
            words: Vec::new(),
            plan: self.plan,
            save: self.save.clone(),
            local: self.local,
            format: None,
            verbose: false,
            fault: None,
        };
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) if word.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            match name {
                "--plan" => asked.plan = true,
                "--local" => asked.local = true,
                "--verbose" => asked.verbose = true,
                "-J" | "--json" => asked.format = Some(Format::Json),
                "--save" => {
                    let value = attached.or_else(|| words.next().cloned());
                    match value.filter(|value| !value.is_empty()) {
                        Some(value) => asked.save = Some(PathBuf::from(value)),
                        None => asked.fault = Some("--save needs the name of a file".to_owned()),
                    }
                }
                "--output" | "--format" => {
                    let value = attached.or_else(|| words.next().cloned());
                    let value = value.unwrap_or_default();
                    match Format::from_str(&value, false) {
                        Ok(value) => asked.format = asked.format.or(Some(value)),
                        Err(_) => {
                            let value = output::printable(clip_chars(&value, 64));
                            let fault = format!("{name}: '{value}' is none of json, table, text");
                            asked.fault = Some(fault);
                        }
                    }
                }
                _ => asked.words.push(word.clone()),
            }
        }
        asked
    }

    pub fn options(&self, format: Format, verbose: bool) -> (Format, bool) {
        let asked = self.read();
        (asked.format.unwrap_or(format), verbose || asked.verbose)
    }
}

pub fn run(args: &Args, format: Option<Format>) -> Result<u8, Failure> {
    let asked = args.read();
    let format = asked.format.or(format);
    if let Some(fault) = asked.fault {
        return Err(Failure::invalid(fault));
    }
    if asked.words.iter().all(|word| word.trim().is_empty()) {
        return Err(Failure::new(Code::MissingArg, "what is the question?"));
    }
    let is_local = asked.local | backend::wants_local()?;
    let choice = if is_local { Choice::Local } else { Choice::Any };
    if asked.plan || asked.save.is_some() {
        return plan::make(&asked.words, asked.save.as_deref(), choice, format);
    }
    // A person gets text, a program gets what it can read.
    let format = format.unwrap_or(match output::is_terminal() {
        true => Format::Text,
        false => Format::Json,
    });
    match Remote::from_environment()?.filter(|_| !is_local) {
        Some(remote) => {
            debug!("mode: proxy");
            remote::ask(remote, &asked.words, format)
        }
        None => {
            debug!("mode: local");
            here(&asked.words, choice, format)
        }
    }
}

/// The name of a tool or provider, and the question.
fn split<'w>(words: &'w [String], is_known: impl Fn(&str) -> bool) -> (Subject<'w>, String) {
    match words.split_first() {
        Some((first, rest)) if !rest.is_empty() && is_known(first) => {
            (Subject::Named(first), rest.join(" "))
        }
        _ => (Subject::Everything, words.join(" ")),
    }
}

fn here(words: &[String], choice: Choice, format: Format) -> Result<u8, Failure> {
    let mut local = Local::load()?;
    local.discover()?;
    let catalog = local.catalog();
    let (subject, question) = split(words, |word| is_known(catalog, word));
    let skills = registry_here();
    let scopes = &local.identity.scopes;
    let context = Context::new(catalog, &skills, scopes, subject, &question);
    let context = context.map_err(failure)?;
    let Some(chosen) = backend::choose(&local, choice)? else {
        return Err(no_llm());
    };
    let shows_pieces = format == Format::Text && output::is_terminal();
    let mut screen = Screen::new(catalog, scopes);
    let runtime = runtime()?;
    let context = runtime.block_on(context.with_live_help());
    let question_to = Question {
        system: &prompt::system(&context),
        user: &question,
        traceparent: None,
    };
    let clients = chosen.clients(local.clients());
    let mut shown = String::new();
    let answered = runtime.block_on(async {
        if !shows_pieces {
            return chosen.backend.ask(&question_to, clients).await;
        }
        let mut show = |piece: &str| {
            let lines = screen.push(piece);
            output::piece(&lines);
            shown += &lines;
        };
        let asked = &chosen.backend;
        asked.ask_in_pieces(&question_to, clients, &mut show).await
    });
    let no_text = || HelpError::Request(NO_TEXT.to_owned());
    let answer = match answered.map_err(|error| chosen.named(error)) {
        Ok(Some(answer)) => answer,
        Ok(None) if !is_absent(&no_text(), chosen.kind) => {
            return Err(Failure::new(Code::UpstreamError, NO_TEXT));
        }
        Err(error) if !shown.is_empty() || !is_absent(&error, chosen.kind) => {
            return Err(failure(error));
        }
        absent => {
            let why = absent.err().unwrap_or_else(no_text);
            output::note(&format!(
                "No language model answered ({why}). This is what the search finds.\n{}",
                index::hints()
            ));
            let (content, names) = index::answer(&context, &question);
            print(&content, &names, format);
            return Ok(0);
        }
    };
    let shown = shows_pieces.then_some(shown);
    finish(&answer, shown, &mut screen, (&context, &question), format);
    Ok(0)
}

/// Shows an answer, or what is left of one that was `shown` while it came, and what ati has to add.
fn finish(
    answer: &Answer,
    shown: Option<String>,
    screen: &mut Screen<'_>,
    (context, question): (&Context<'_>, &str),
    format: Format,
) {
    let is_shown = shown.is_some();
    let mut content = match shown {
        None => screen.whole(answer),
        Some(shown) => {
            let rest = screen.end(answer.is_cut);
            output::piece(&rest);
            shown + &rest
        }
    };
    for left_out in &screen.left_out {
        warn!(
            "left out a command that would not run: {}",
            output::printable(&left_out.why)
        );
    }
    if answer.is_cut {
        output::note(&cut_note());
    }
    let mut more = String::new();
    if screen.commands == 0 && !screen.left_out.is_empty() {
        let (found, _) = index::answer(context, question);
        more += &format!("\n\n{found}");
    }
    let named = mentioned(&format!("{content}{more}"), &context.tools);
    let names: Vec<String> = named.iter().map(|tool| tool.name.clone()).collect();
    if format != Format::Json {
        more += &cards(&named);
    }
    if is_shown {
        // The last line has ended already.
        let more = more.strip_prefix('\n').unwrap_or(&more);
        output::piece(&format!("{more}\n"));
        return;
    }
    content.truncate(content.trim_end().len());
    content += &more;
    print(content.trim_start(), &names, format);
}

fn print(content: &str, names: &[String], format: Format) {
    match format {
        Format::Json => output::compact(&json!({"content": content, "tools_referenced": names})),
        Format::Text | Format::Table => output::line(content),
    }
}

/// How to call the tools that an answer names.
fn cards(tools: &[&Tool]) -> String {
    if tools.is_empty() {
        return String::new();
    }
    let mut text = "\n\nQuick Reference\n---------------".to_owned();
    for tool in tools.iter().take(MOST_CARDS) {
        text += &format!("\n{}", brief(tool));
    }
    text
}

/// Whether there is no language model, rather than one that fails.
fn is_absent(error: &HelpError, kind: Kind) -> bool {
    match kind {
        Kind::Cloud => false,
        Kind::Local => matches!(error, HelpError::Unreachable(_)),
        // It wasn't asked for, so it may also be something else at that address.
        Kind::Fallback => true,
    }
}

/// The end of a command, with what can be done about it.
pub fn failure(error: HelpError) -> Failure {
    let code = error.code();
    if let HelpError::NotVisible(name) = &error {
        let message = format!("'{name}' is not visible in your current scopes.");
        return Failure::new(code, message);
    }
    let hint = hint(&error);
    Failure {
        hint,
        ..Failure::from_error(code, error)
    }
}

/// What can be done about it.
fn hint(error: &HelpError) -> Option<String> {
    match error {
        HelpError::Api {
            retry_after: Some(seconds),
            ..
        } => Some(format!("its server wants {seconds} s of patience")),
        HelpError::Api {
            status: 401 | 403, ..
        } => Some("the key of the language model isn't accepted".to_owned()),
        HelpError::Silent(_) => {
            Some("ATI_ASSIST_TIMEOUT_SECONDS is how long it may send nothing".to_owned())
        }
        _ => None,
    }
}

pub fn no_llm() -> Failure {
    Failure::new(Code::MissingKey, "there is no key of a language model").hint(index::hints())
}

/// The whole answer to a question, for callers that read it themselves.
pub fn ask_whole(
    local: &Local,
    chosen: &Chosen,
    system: &str,
    user: &str,
) -> Result<Answer, HelpError> {
    let clients = chosen.clients(local.clients());
    let runtime = runtime().map_err(|e| HelpError::Request(e.to_string()))?;
    let question = Question {
        system,
        user,
        traceparent: None,
    };
    let answered = runtime.block_on(chosen.backend.ask(&question, clients));
    let answered = answered.map_err(|error| chosen.named(error))?;
    answered.ok_or_else(|| HelpError::Request("its answer has no text".to_owned()))
}

/// All tools of the question, for plans.
fn context_of<'a>(local: &'a Local, words: &'a [String]) -> Result<(Context<'a>, String), Failure> {
    let catalog = local.catalog();
    let (subject, question) = split(words, |word| is_known(catalog, word));
    let skills = registry_here();
    let context = Context::new(catalog, &skills, &local.identity.scopes, subject, &question);
    let context = context.map_err(failure)?;
    let context = runtime()?.block_on(context.with_live_help());
    Ok((context, question))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::assist::known_commands::{CHANGING, LOOKING};

    #[test]
    fn commands_that_answers_are_checked_for_exist() {
        let all = crate::cli::Cli::command();
        for known in LOOKING.iter().chain(&CHANGING).filter(|it| **it != "help") {
            let mut command = &all;
            for word in known.split(' ') {
                let below = command.find_subcommand(word);
                command = below.unwrap_or_else(|| panic!("ati {known}"));
            }
        }
    }
}
