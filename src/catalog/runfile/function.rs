//! One function of a Runfile.

use std::path::PathBuf;

/// A function, as its text and the comments above it say.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    pub name: String,
    /// Where its head stands.
    pub line: u32,
    /// The folder of its file.
    pub folder: PathBuf,
    /// `@desc`. Only functions that have one become tools.
    pub description: Option<String>,
    /// In the order of the interpreter's arguments.
    pub parameters: Vec<Parameter>,
    pub interpreter: Interpreter,
    pub body: String,
    /// `@cd`: the folder that it runs in, in place of its file's.
    pub cd: Option<PathBuf>,
    /// `@depends`: functions that run before it.
    pub depends: Vec<String>,
    /// Whether the shell stops at the first command that fails.
    pub stops_at_errors: bool,
    /// `@safe`: offered with `--readonly`, too.
    pub is_safe: bool,
}

impl Function {
    /// As agents see it: a colon isn't allowed everywhere.
    pub fn tool_name(&self) -> String {
        self.name.replace(':', "__")
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    pub name: String,
    /// The number of the interpreter's argument; of the first one, where it is a rest.
    pub position: usize,
    pub kind: Kind,
    pub required: bool,
    pub default: Option<String>,
    pub description: Option<String>,
    /// Takes all arguments from its position on.
    pub is_rest: bool,
    /// It stands in the head, so that the body has a variable of its name.
    pub is_variable: bool,
    /// How a shell evaluates its values, if it does: then they have to be plain.
    pub evaluated: Option<Evaluated>,
}

/// What a shell takes a value for, and looks into, where it would otherwise be a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluated {
    Number,
    /// Of a variable.
    Name,
}

impl Evaluated {
    /// Whether there is nothing in a text that a shell would run.
    pub fn is_plain(self, text: &str) -> bool {
        match self {
            Evaluated::Number => {
                let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
                digits.bytes().all(|byte| byte.is_ascii_digit())
            }
            Evaluated::Name => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                text.bytes().all(plain)
            }
        }
    }

    /// What values have to be.
    pub fn wanted(self) -> &'static str {
        match self {
            Evaluated::Number => "an integer, because the function computes with it",
            Evaluated::Name => "a plain name, because the function takes it for a variable's",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    String,
    Integer,
    Number,
    Boolean,
    Object,
}

impl Kind {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "string" | "str" => Kind::String,
            "integer" | "int" => Kind::Integer,
            "number" | "float" => Kind::Number,
            "boolean" | "bool" => Kind::Boolean,
            "object" | "obj" | "dict" => Kind::Object,
            _ => return None,
        })
    }

    /// As JSON Schema has it.
    pub fn schema_type(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
            Kind::Object => "object",
        }
    }
}

/// What reads the body of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Interpreter {
    #[default]
    Bash,
    Sh,
    Python,
    Node,
    Ruby,
    Pwsh,
}

impl Interpreter {
    /// As `@shell` and the first line of a body name it.
    pub const NAMES: [&'static str; 7] =
        ["bash", "sh", "python", "python3", "node", "ruby", "pwsh"];

    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bash" => Interpreter::Bash,
            "sh" | "dash" => Interpreter::Sh,
            "python" | "python3" => Interpreter::Python,
            "node" | "nodejs" => Interpreter::Node,
            "ruby" => Interpreter::Ruby,
            "pwsh" | "powershell" => Interpreter::Pwsh,
            _ => return None,
        })
    }

    pub fn program(self) -> &'static str {
        match self {
            Interpreter::Bash => "bash",
            Interpreter::Sh => "sh",
            Interpreter::Python => "python3",
            Interpreter::Node => "node",
            Interpreter::Ruby => "ruby",
            Interpreter::Pwsh => "pwsh",
        }
    }

    pub fn is_shell(self) -> bool {
        matches!(self, Interpreter::Bash | Interpreter::Sh)
    }
}
