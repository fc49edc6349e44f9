//! Output schemas, compiled once a type version and shared by all plans of it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fanfold_domain::Json;
use fanfold_domain::event::Verdict;
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::schema::Schema;
use lru::LruCache;

/// Compiled schemas kept.
const SCHEMAS_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// Judges results.
pub(crate) struct Judge {
    by_text: LruCache<usize, (Json, Arc<Compiled>)>,
    by_digest: LruCache<String, Arc<Compiled>>,
}

enum Compiled {
    Anything,
    Schema(Schema),
    Unusable(String),
}

impl Judge {
    pub(crate) fn new() -> Self {
        Self { by_text: LruCache::new(SCHEMAS_KEPT), by_digest: LruCache::new(SCHEMAS_KEPT) }
    }

    pub(crate) fn judge(&mut self, schema: &Json, result: &str) -> Verdict {
        let errors = match &*self.compiled(schema) {
            Compiled::Anything => Vec::new(),
            Compiled::Schema(schema) => schema.check_text(result),
            Compiled::Unusable(reason) => vec![format!("/: the type's output schema can't be used: {reason}")],
        };
        Verdict { valid: errors.is_empty(), errors }
    }

    fn compiled(&mut self, schema: &Json) -> Arc<Compiled> {
        // One plan's schema is one allocation; the digest finds the same text of another plan.
        let address = Arc::as_ptr(schema).cast::<u8>() as usize;
        if let Some((held, compiled)) = self.by_text.get(&address)
            && Arc::ptr_eq(held, schema)
        {
            return Arc::clone(compiled);
        }
        let text = schema.get();
        let compiled = self.by_digest.get_or_insert(sha256_hex(text.as_bytes()), || {
            Arc::new(match text.trim() {
                "true" | "{}" => Compiled::Anything,
                text => Schema::compile(text).map_or_else(|e| Compiled::Unusable(e.0), Compiled::Schema),
            })
        });
        let compiled = Arc::clone(compiled);
        self.by_text.put(address, (Arc::clone(schema), Arc::clone(&compiled)));
        compiled
    }
}
