//! `ati man`: pages of the manual, made of the same definitions as the help texts.

use std::path::PathBuf;

use super::{file_failure, help, output};
use crate::error::{Code, Failure};
use crate::files;

#[derive(clap::Args)]
pub struct Args {
    /// The command whose page is printed, like `token issue` [default: ati itself]
    #[arg(conflicts_with = "dir")]
    command: Vec<String>,

    /// Write all pages to this folder instead, as ati.1, ati-run.1 and so on
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A page: the name of its file without the section, and its text in roff.
struct Page {
    name: String,
    text: String,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let pages = pages()?;
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).map_err(|e| file_failure(Code::ExecutionFailed, dir, e))?;
        for page in pages {
            let path = dir.join(format!("{}.1", page.name));
            files::write_atomic(&path, page.text.as_bytes(), 0o644)
                .map_err(|e| file_failure(Code::ExecutionFailed, &path, e))?;
        }
        return Ok(0);
    }
    let mut words = vec!["ati"];
    words.extend(args.command.iter().map(String::as_str));
    let name = words.join("-");
    let page = pages.iter().find(|page| page.name == name).ok_or_else(|| {
        let message = format!("there is no command '{}'", words.join(" "));
        Failure::invalid(message).hint("'ati --help' lists the commands")
    })?;
    output::line(page.text.trim_end());
    Ok(0)
}

fn pages() -> Result<Vec<Page>, Failure> {
    let mut root = help::command();
    root.build();
    let mut pages = Vec::new();
    add(&root, "ati", &mut pages)?;
    Ok(pages)
}

fn add(command: &clap::Command, name: &str, pages: &mut Vec<Page>) -> Result<(), Failure> {
    let mut text = Vec::new();
    // A page of a subcommand is named ati-run, as man looks it up.
    let titled = command.clone().display_name(name.to_owned());
    clap_mangen::Man::new(titled)
        .source(concat!("ati ", env!("CARGO_PKG_VERSION")))
        .render(&mut text)
        .map_err(|e| Failure::from_error(Code::ExecutionFailed, e))?;
    pages.push(Page {
        name: name.to_owned(),
        text: plainer(&String::from_utf8_lossy(&text)),
    });
    for sub in command.get_subcommands() {
        if sub.get_name() != "help" && !sub.is_hide_set() {
            add(sub, &format!("{name}-{}", sub.get_name()), pages)?;
        }
    }
    Ok(())
}

/// The page without definitions of its own, so that its first line is the title, and with its
/// examples under a heading.
fn plainer(text: &str) -> String {
    let title = text.find(".TH ").unwrap_or(0);
    text[title..]
        .replace("\\*(Aq", "\\(aq")
        .replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n")
        .replace("\n\nExamples:\n", "\n.SH EXAMPLES\n")
}
