//! `egret schema`: a JSON Schema (draft 2020-12) of the configuration or of a rule-set file, for
//! completion and checks in editors.
//!
//! Describes shapes, not meanings: what a file really means, `egret check` says.

mod keys;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::say;
use keys::{CONFIGURATION, Key, Kind, RULE_SET};

/// What the editor is told before the first key.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

#[derive(Debug, Args)]
pub(super) struct SchemaArgs {
    /// File to describe
    #[arg(value_enum, default_value_t = Described::Config)]
    file: Described,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Described {
    /// The configuration, egret.toml
    Config,
    /// A rule set, rules/NAME.toml
    Rules,
}

impl SchemaArgs {
    pub(super) fn run(self) -> u8 {
        let text = serde_json::to_string_pretty(&self.file.schema()).unwrap_or_default();
        say(&(text + "\n"))
    }
}

impl Described {
    fn schema(self) -> Value {
        let (title, keys) = match self {
            Self::Config => ("egret configuration", CONFIGURATION),
            Self::Rules => ("egret rule set", RULE_SET),
        };
        let mut schema = table(keys);
        schema.insert("$schema".to_owned(), DIALECT.into());
        schema.insert("title".to_owned(), title.into());
        Value::Object(schema)
    }
}

/// A table with these keys and no others.
fn table(keys: &[Key]) -> Map<String, Value> {
    let properties: Map<_, _> = keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<_> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let mut out = Map::new();
    out.insert("type".to_owned(), "object".into());
    out.insert("properties".to_owned(), properties.into());
    out.insert("additionalProperties".to_owned(), false.into());
    if !required.is_empty() {
        out.insert("required".to_owned(), required.into());
    }
    out
}

fn property(key: &Key) -> Value {
    let mut value = shape(&key.kind);
    if let Some(object) = value.as_object_mut() {
        object.insert("description".to_owned(), key.help.into());
    }
    value
}

fn shape(kind: &Kind) -> Value {
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Matching(pattern) => json!({ "type": "string", "pattern": pattern }),
        Kind::Words(words) => json!({ "enum": words }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Texts => one_or_list(&json!({ "type": "string" })),
        Kind::Ports => one_or_list(&json!({
            "anyOf": [
                { "type": "integer", "minimum": 1, "maximum": 65535 },
                { "type": "string", "pattern": r"^[0-9]+(-[0-9]+)?$" },
            ],
        })),
        Kind::Table(keys) => Value::Object(table(keys)),
        Kind::Tables(keys) => json!({ "type": "array", "items": table(keys) }),
        Kind::Named(keys) => json!({ "type": "object", "additionalProperties": table(keys) }),
        Kind::NamedTexts => {
            json!({ "type": "object", "additionalProperties": one_or_list(&json!({ "type": "string" })) })
        }
    }
}

fn one_or_list(item: &Value) -> Value {
    json!({ "anyOf": [item, { "type": "array", "items": item }] })
}

#[cfg(test)]
mod tests;
