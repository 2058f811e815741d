//! What a question is answered from: tools that the caller may use, skills that it may see, and
//! what programs say about themselves. Nothing else of a catalogue gets into a prompt.

use std::collections::HashSet;
use std::sync::Arc;

use crate::auth::Scopes;
use crate::catalog::search::MOST_IN_PROMPT;
use crate::catalog::{Catalog, Tool};
use crate::error::HelpError;
use crate::exec::cli::help;
use crate::skills::{Registry, Skill, Visible};
use crate::text::clip_chars;

/// Characters of one skill, and of all skills of a prompt.
const LONGEST_SKILL: usize = 4000;
const ALL_SKILLS: usize = 16_000;
/// Skills that are found by words of tool names.
const MOST_FOUND: usize = 5;
/// Programs that are asked for their help where the question isn't about one.
const MOST_PROGRAMS: usize = 5;

/// What a question is limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    Everything,
    /// The name of a tool or of a provider.
    Named(&'a str),
}

/// A skill as it gets into a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillText {
    pub name: String,
    pub description: String,
    /// Empty: only its description is known here.
    pub body: String,
}

pub struct Context<'a> {
    catalog: &'a Catalog,
    scopes: &'a Scopes,
    pub subject: Subject<'a>,
    pub tools: Vec<&'a Arc<Tool>>,
    pub skills: Vec<SkillText>,
    /// What programs say about themselves, by the names of their tools.
    pub help: Vec<(&'a str, String)>,
}

impl<'a> Context<'a> {
    /// An error where the caller sees nothing of what it names.
    pub fn new(
        catalog: &'a Catalog,
        skills: &Registry,
        scopes: &'a Scopes,
        subject: Subject<'a>,
        question: &str,
    ) -> Result<Self, HelpError> {
        let visible: Vec<&Arc<Tool>> = catalog.visible(scopes).collect();
        let about = match subject {
            Subject::Everything => visible,
            Subject::Named(name) => {
                let own = catalog.find(name).map(|tool| tool.name.as_str());
                let tools = visible.into_iter();
                let (by_name, others): (Vec<_>, Vec<_>) =
                    tools.partition(|tool| Some(tool.name.as_str()) == own);
                // A program's tool has the name of its provider.
                let of_provider = others.into_iter().filter(|tool| tool.provider.name == name);
                let named: Vec<_> = by_name.into_iter().chain(of_provider).collect();
                if named.is_empty() {
                    return Err(HelpError::NotVisible(name.chars().take(256).collect()));
                }
                named
            }
        };
        // Where there are many, the search picks those that fit the question.
        let tools = match about.len() {
            many if many > MOST_IN_PROMPT => {
                let found = search(catalog, scopes, subject, question, MOST_IN_PROMPT);
                match found.is_empty() {
                    false => found,
                    // Better some than none: the model can say what kinds of tools there are.
                    true => about.into_iter().take(MOST_IN_PROMPT).collect(),
                }
            }
            _ => about,
        };
        let seen = skills.visible(scopes, catalog);
        let skills = skills_for(&tools, skills, &seen);
        Ok(Context {
            catalog,
            scopes,
            subject,
            tools,
            skills,
            help: Vec::new(),
        })
    }

    /// The tools that fit the question best, among those that it is about.
    pub fn search(&self, question: &str, most: usize) -> Vec<&'a Arc<Tool>> {
        search(self.catalog, self.scopes, self.subject, question, most)
    }

    /// Asks programs for their help: those of the question, if they aren't too many.
    pub async fn with_live_help(mut self) -> Self {
        let programs = self.tools.iter();
        let programs: Vec<&'a Arc<Tool>> = programs
            .filter(|tool| tool.invocation.is_program())
            .copied()
            .collect();
        if self.subject == Subject::Everything && programs.len() > MOST_PROGRAMS {
            return self;
        }
        let asked = programs.iter().take(MOST_PROGRAMS);
        let asked = asked.map(async |tool| Some((&*tool.name, help::ask(&tool.provider).await?)));
        let said = futures::future::join_all(asked).await;
        self.help = said.into_iter().flatten().collect();
        self
    }

    /// With skills of which only the description is known, within the same budget.
    pub fn with_described(mut self, described: impl IntoIterator<Item = SkillText>) -> Self {
        for skill in described {
            let known = self.skills.iter().any(|own| own.name == skill.name);
            if !known && self.skill_room() > 0 {
                let room = self.skill_room().min(LONGEST_SKILL);
                self.skills.push(SkillText {
                    description: clip_chars(&skill.description, room).to_owned(),
                    ..skill
                });
            }
        }
        self
    }

    fn skill_room(&self) -> usize {
        let used = self.skills.iter().map(SkillText::length);
        ALL_SKILLS.saturating_sub(used.sum())
    }
}

impl SkillText {
    fn length(&self) -> usize {
        self.body.chars().count() + self.description.chars().count()
    }
}

/// Whether a word names a tool or a provider, visible or not.
pub fn is_known(catalog: &Catalog, name: &str) -> bool {
    let mut public = catalog.public();
    let mut providers = catalog.providers().iter();
    catalog.find(name).is_some()
        || public.any(|tool| tool.provider.name == name)
        || providers.any(|one| one.name == name && !one.internal && one.mcp().is_some())
}

fn search<'a>(
    catalog: &'a Catalog,
    scopes: &Scopes,
    subject: Subject<'_>,
    question: &str,
    most: usize,
) -> Vec<&'a Arc<Tool>> {
    let own = match subject {
        Subject::Named(name) => catalog.find(name).map(|tool| tool.name.as_str()),
        Subject::Everything => None,
    };
    let is_about = |tool: &Tool| match subject {
        Subject::Everything => true,
        Subject::Named(name) => tool.provider.name == name || Some(tool.name.as_str()) == own,
    };
    catalog.search(question, scopes, is_about, most)
}

/// Those bound to the tools, then those bound to their providers, then those that words of the
/// tools' names find. Each is cut, and all together have a budget.
fn skills_for(tools: &[&Arc<Tool>], skills: &Registry, seen: &Visible<'_>) -> Vec<SkillText> {
    let by_tool = tools
        .iter()
        .flat_map(|tool| skills.bound_to_tool(&tool.name));
    let by_provider = tools.iter();
    let by_provider = by_provider.flat_map(|tool| skills.bound_to_provider(&tool.provider.name));
    let words: Vec<&str> = tools
        .iter()
        .flat_map(|tool| tool.name.split([':', '_', '-', '.']))
        .filter(|word| word.len() > 2)
        .collect();
    let found = match words.is_empty() || skills.is_empty() {
        true => Vec::new(),
        false => found_by(&words, seen),
    };
    let mut names = HashSet::new();
    let mut left = ALL_SKILLS;
    let mut texts = Vec::new();
    let all = by_tool
        .chain(by_provider)
        .filter(|skill| seen.contains(skill));
    for skill in all.chain(found) {
        if left == 0 || !names.insert(skill.name.as_str()) {
            continue;
        }
        let body = clip_chars(&skill.body, LONGEST_SKILL.min(left));
        left -= body.chars().count();
        texts.push(SkillText {
            name: skill.name.clone(),
            description: String::new(),
            body: body.to_owned(),
        });
    }
    texts
}

/// The skills that most of these words find, each word on its own.
fn found_by<'s>(words: &[&str], seen: &Visible<'s>) -> Vec<&'s Arc<Skill>> {
    let unique: HashSet<&str> = words.iter().copied().collect();
    let mut counted: Vec<(usize, &Arc<Skill>)> = seen
        .iter()
        .map(|skill| {
            let mut named: HashSet<&str> = skill.name.split('-').collect();
            named.extend(skill.keywords.iter().map(String::as_str));
            (named.intersection(&unique).count(), skill)
        })
        .filter(|(hits, _)| *hits > 0)
        .collect();
    counted.sort_by_key(|(hits, _)| std::cmp::Reverse(*hits));
    counted.truncate(MOST_FOUND);
    counted.into_iter().map(|(_, skill)| skill).collect()
}
