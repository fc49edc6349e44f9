//! JSON Schema checks: compiled once, answered with the paths of what is wrong.

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

/// Most errors listed for one document.
pub const ERRORS_MAX: usize = 16;

/// A schema that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a usable JSON Schema: {0}")]
pub struct SchemaError(pub String);

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
}

/// One thing wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer into the document; empty: the document itself.
    pub path: String,
    /// For people.
    pub message: String,
    /// Members that the schema doesn't know.
    pub unknown: Vec<String>,
    /// A member that is missing.
    pub missing: Option<String>,
    /// A number, text or list is smaller or larger than allowed.
    pub out_of_range: bool,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", if self.path.is_empty() { "/" } else { &self.path }, self.message)
    }
}

impl Schema {
    /// Compiles a schema. References outside the document are not followed.
    pub fn compile(text: &str) -> Result<Self, SchemaError> {
        let value: Value = serde_json::from_str(text).map_err(|e| SchemaError(e.to_string()))?;
        let validator = Validator::options()
            .should_validate_formats(true)
            .build(&value)
            .map_err(|e| SchemaError(format!("{} at {}", e, e.instance_path())))?;
        Ok(Self { validator })
    }

    /// Everything wrong with a document, at most [`ERRORS_MAX`].
    pub fn check(&self, value: &Value) -> Vec<Violation> {
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        let violation = |error: jsonschema::ValidationError<'_>| {
            let (unknown, missing) = match error.kind() {
                ValidationErrorKind::AdditionalProperties { unexpected } => (unexpected.clone(), None),
                ValidationErrorKind::Required { property } => (Vec::new(), property.as_str().map(str::to_owned)),
                _ => (Vec::new(), None),
            };
            let out_of_range = matches!(
                error.kind(),
                ValidationErrorKind::Minimum { .. }
                    | ValidationErrorKind::Maximum { .. }
                    | ValidationErrorKind::ExclusiveMinimum { .. }
                    | ValidationErrorKind::ExclusiveMaximum { .. }
                    | ValidationErrorKind::MinLength { .. }
                    | ValidationErrorKind::MaxLength { .. }
                    | ValidationErrorKind::MinItems { .. }
                    | ValidationErrorKind::MaxItems { .. }
            );
            // A value that came from outside may be a megabyte; what is shown of it is not.
            let message: String = error.to_string().chars().take(300).collect();
            Violation { path: error.instance_path().to_string(), message, unknown, missing, out_of_range }
        };
        self.validator.iter_errors(value).take(ERRORS_MAX).map(violation).collect()
    }

    /// Everything wrong with a JSON text, as lines `path: what`.
    pub fn check_text(&self, text: &str) -> Vec<String> {
        match serde_json::from_str(text) {
            Ok(value) => self.check(&value).iter().map(ToString::to_string).collect(),
            Err(e) => vec![format!("/: not JSON: {e}")],
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_kept() {
        let schema = Schema::compile(
            r#"{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"array","items":{"type":"integer","minimum":0}}}}"#,
        )
        .unwrap();
        assert!(schema.check_text(r#"{"a":[1,2]}"#).is_empty());
        let lines = schema.check_text(r#"{"a":[1,-2,"x"],"b":1}"#);
        assert!(lines.iter().any(|l| l.starts_with("/a/1: ")), "{lines:?}");
        assert!(lines.iter().any(|l| l.starts_with("/a/2: ")), "{lines:?}");
        assert_eq!(schema.check(&serde_json::json!({"a": [], "b": 1}))[0].unknown, ["b"]);
        assert_eq!(schema.check(&serde_json::json!({}))[0].missing.as_deref(), Some("a"));
    }

    #[test]
    fn a_broken_schema_is_refused() {
        assert!(Schema::compile(r#"{"type":"nonsense"}"#).is_err());
        assert!(Schema::compile("{").is_err());
    }
}
