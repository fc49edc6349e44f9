//! Reading a result only as far as aggregates point: what nobody points at is checked as JSON and passed over.
//!
//! What is taken and what is refused is exactly what reading the whole result as a [`Value`] gives; a test holds both against each
//! other. So a summary computed by an older version, that did read the whole, has the same bytes.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The name by which serde_json hands a raw value through; a result that says it is read in the old way.
const RAW_TOKEN: &str = "$serde_json::private::RawValue";

/// Where the pointers of a list of aggregates lead, as a tree over their segments.
#[derive(Debug)]
pub(super) struct Paths {
    root: Node,
    pointers: Vec<String>,
    /// Of each pointer what is looked up in the value its place in the tree gives.
    rests: Vec<String>,
}

#[derive(Debug, Default)]
struct Node {
    /// Pointers that end here, or go on in a way that no tree can follow (`*`); after [`Node::settle`] all that go through here.
    ends: Vec<usize>,
    children: Vec<(String, Node)>,
    /// Every pointer through this node.
    through: Vec<usize>,
}

/// What was found of a result: for each pointer the value in which its rest is looked up.
#[derive(Debug, Default)]
pub(super) struct Found {
    values: Vec<Value>,
    /// By pointer: index into `values`.
    by_pointer: Vec<Option<usize>>,
    /// Of a result that could not be scanned.
    whole: Option<Value>,
}

impl Found {
    fn clear(&mut self, pointers: usize) {
        self.values.clear();
        self.by_pointer.clear();
        self.by_pointer.resize(pointers, None);
        self.whole = None;
    }

    fn take(&mut self, value: Value, pointers: &[usize]) {
        self.put(pointers, Some(self.values.len()));
        self.values.push(value);
    }

    fn put(&mut self, pointers: &[usize], at: Option<usize>) {
        for pointer in pointers {
            if let Some(slot) = self.by_pointer.get_mut(*pointer) {
                *slot = at;
            }
        }
    }
}

/// Gives the values a pointer finds in a value, in order.
pub(super) fn find<'v>(value: &'v Value, pointer: &str, mut give: impl FnMut(&'v Value)) {
    let Some((before, after)) = pointer.split_once("/*") else {
        return value.pointer(pointer).into_iter().for_each(give);
    };
    let mut look = |value: &'v Value| value.pointer(after).into_iter().for_each(&mut give);
    match value.pointer(before) {
        Some(Value::Array(items)) => items.iter().for_each(look),
        Some(Value::Object(members)) => members.values().for_each(&mut look),
        _ => {}
    }
}

impl Paths {
    /// The tree of these pointers.
    pub(super) fn new<'p>(pointers: impl Iterator<Item = &'p str>) -> Self {
        let pointers: Vec<String> = pointers.map(ToOwned::to_owned).collect();
        let mut root = Node::default();
        pointers.iter().enumerate().for_each(|(index, pointer)| root.add(index, pointer));
        let mut rests = pointers.clone();
        root.settle(0, &mut rests);
        Self { root, pointers, rests }
    }

    /// Looks the pointers up in a result's text; `false`: it is not JSON that can be read.
    pub(super) fn scan(&self, text: &str, found: &mut Found) -> bool {
        found.clear(self.pointers.len());
        let mut json = serde_json::Deserializer::from_str(text);
        if At(&self.root, found).deserialize(&mut json).is_ok() && json.end().is_ok() {
            return true;
        }
        // Rare: not JSON, or something only the reader of whole values understands.
        found.whole = serde_json::from_str::<Value>(text).ok();
        found.whole.is_some()
    }

    /// Gives the values a pointer found in the result scanned last, in order.
    pub(super) fn found<'f>(&self, pointer: usize, found: &'f Found, give: impl FnMut(&'f Value)) {
        let part = found.by_pointer.get(pointer).copied().flatten().and_then(|at| found.values.get(at));
        let (value, text) = match &found.whole {
            Some(whole) => (Some(whole), self.pointers.get(pointer)),
            None => (part, self.rests.get(pointer)),
        };
        if let (Some(value), Some(text)) = (value, text) {
            find(value, text, give);
        }
    }
}

/// The segment a pointer begins with, as it stands there, and the rest; `None`: it ends, or goes on with a `*`.
fn first_segment(pointer: &str) -> Option<(&str, &str)> {
    let segment = pointer.strip_prefix('/').filter(|rest| !rest.starts_with('*'))?;
    Some(segment.find('/').map_or((segment, ""), |at| segment.split_at(at)))
}

impl Node {
    fn add(&mut self, index: usize, pointer: &str) {
        self.through.push(index);
        let Some((segment, rest)) = first_segment(pointer) else {
            self.ends.push(index);
            return;
        };
        let name = segment.replace("~1", "/").replace("~0", "~");
        let known = self.children.iter().position(|(known, _)| *known == name);
        let at = known.unwrap_or_else(|| {
            self.children.push((name, Node::default()));
            self.children.len() - 1
        });
        if let Some((_, child)) = self.children.get_mut(at) {
            child.add(index, rest);
        }
    }

    /// Where a pointer ends everything is read, and what goes on below is looked up in that: such a node is the last. Cuts each pointer
    /// down to what is left of it behind its last node, which stands so deep.
    fn settle(&mut self, depth: usize, rests: &mut [String]) {
        if self.ends.is_empty() {
            return self.children.iter_mut().for_each(|(_, child)| child.settle(depth + 1, rests));
        }
        (self.ends, self.children) = (self.through.clone(), Vec::new());
        for pointer in &self.ends {
            let Some(rest) = rests.get_mut(*pointer) else { continue };
            for _ in 0..depth {
                *rest = first_segment(rest).map_or_else(String::new, |(_, rest)| rest.to_owned());
            }
        }
    }

    fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|(known, _)| known == name).map(|(_, child)| child)
    }

    /// As [`Value::pointer`] takes a segment for a place in an array.
    fn item(&self, place: usize) -> Option<&Node> {
        let is = |name: &str| !name.starts_with('+') && (name == "0" || !name.starts_with('0')) && name.parse() == Ok(place);
        self.children.iter().find(|(name, _)| is(name)).map(|(_, child)| child)
    }
}

/// Reads a value at a node of the tree.
struct At<'n, 'f>(&'n Node, &'f mut Found);

impl<'de> DeserializeSeed<'de> for At<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.0.ends.is_empty() {
            return deserializer.deserialize_any(self);
        }
        let value = Value::deserialize(deserializer)?;
        self.1.take(value, &self.0.ends);
        Ok(())
    }
}

/// Checks a value and passes over it. Not `IgnoredAny`: that takes texts which are no values.
#[derive(Clone, Copy)]
struct Over;

impl<'de> DeserializeSeed<'de> for Over {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A member's name: what the tree has below it.
struct Name<'n>(Option<&'n Node>);

impl<'de, 'n> DeserializeSeed<'de> for Name<'n> {
    type Value = Option<&'n Node>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, 'n> Visitor<'de> for Name<'n> {
    type Value = Option<&'n Node>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        if name == RAW_TOKEN {
            return Err(E::custom("read as a whole"));
        }
        Ok(self.0.and_then(|node| node.child(name)))
    }
}

macro_rules! scalars {
    () => {
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("any JSON value")
        }
        fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
            Ok(())
        }
        fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
            Ok(())
        }
        fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
            Ok(())
        }
        fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
            Ok(())
        }
        fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
            Ok(())
        }
        fn visit_unit<E: Error>(self) -> Result<(), E> {
            Ok(())
        }
    };
}

impl<'de> Visitor<'de> for Over {
    type Value = ();

    scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Over)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key_seed(Name(None))?.is_some() {
            members.next_value_seed(Over)?;
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for At<'_, '_> {
    type Value = ();

    scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self(node, found) = self;
        for place in 0.. {
            let more = match node.item(place) {
                Some(child) => items.next_element_seed(At(child, found))?,
                None => items.next_element_seed(Over)?,
            };
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self(node, found) = self;
        while let Some(child) = members.next_key_seed(Name(Some(node)))? {
            match child {
                Some(child) => {
                    // Of members of one name the last counts, with all that is in it.
                    found.put(&child.through, None);
                    members.next_value_seed(At(child, found))?;
                }
                None => members.next_value_seed(Over)?,
            }
        }
        Ok(())
    }
}
