//! The operands of a command. One that fails gets its sentence, and the others are done. Operands of one
//! file system that stand beside each other share one visit; those of another one are visited after them.

use anyhow::Result;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, Place};
use serde_json::{Value, json};

use super::label::Label;
use super::sentences::{said, why};
use super::{Evicted, Stop, Visit};

/// An operand, and where it is.
pub(super) struct At<'a> {
    pub(super) mount: &'a Mount,
    pub(super) stop: &'a Stop,
    pub(super) place: &'a Place,
    /// Its path; the whole place where operands are of several file systems.
    pub(super) name: &'a Label,
}

/// What became of an operand.
pub(super) struct Done {
    /// As JSON.
    pub(super) value: Value,
    /// Whether no part of it has failed.
    pub(super) whole: bool,
}

impl From<Value> for Done {
    fn from(value: Value) -> Self {
        Self { value, whole: true }
    }
}

/// What a command with `--json` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The value of its operand; an array of values if it has several.
    Each,
    /// One array with the rows of all operands.
    Rows,
}

/// The values of all operands.
pub(super) struct Account {
    shape: Shape,
    values: Vec<Value>,
    /// Whether nothing has failed.
    pub(super) whole: bool,
    /// A server has evicted this client, and may have lost what it had answered.
    evicted: bool,
}

impl Account {
    pub(super) const fn new(shape: Shape) -> Self {
        Self { shape, values: Vec::new(), whole: true, evicted: false }
    }

    fn done(&mut self, done: Done) {
        self.whole &= done.whole;
        match done.value {
            Value::Array(rows) if self.shape == Shape::Rows => self.values.extend(rows),
            value => self.values.push(value),
        }
    }

    fn failed(&mut self, name: &Label, why: &str) {
        self.whole = false;
        self.values.push(name.row(json!({ "error": why })));
    }

    /// A visit has ended with a failure before it came to these operands. Those before them have what they have: all
    /// was done as far as the servers had said.
    fn ended(&mut self, why: &str, lost: bool, rest: impl Iterator<Item = Label>) {
        self.whole = false;
        self.evicted |= lost;
        rest.for_each(|name| self.failed(&name, why));
    }

    /// What became of the operand of this name and path. One that has failed is named on standard error.
    ///
    /// # Errors
    /// The user wants the command to end.
    pub(super) fn add(
        &mut self,
        stop: &Stop,
        name: &Label,
        path: &[u8],
        end: Result<Done>,
    ) -> Result<()> {
        match end {
            Ok(done) => self.done(done),
            Err(e) => {
                // What the user wants is no failure of an operand.
                stop.check()?;
                let why = why(&e, path);
                eprintln!("ulnet lustre: {name}: {why}");
                self.failed(name, &why);
            }
        }
        Ok(())
    }

    /// Prints the values if they are wanted. `false`: an operand has failed, or a part of it.
    pub(super) fn print(self, json: bool, operands: usize) -> bool {
        let whole = self.whole;
        if json {
            println!("{:#}", self.json(operands));
        }
        whole
    }

    /// As JSON, of so many operands.
    pub(super) fn json(mut self, operands: usize) -> Value {
        match (self.shape, operands) {
            (Shape::Each, 1) => self.values.pop().unwrap_or_default(),
            _ => self.values.into(),
        }
    }
}

/// Whether two places are in one file system.
pub(super) fn same_system(a: &Place, b: &Place) -> bool {
    (&a.nodes, &a.fsname) == (&b.nodes, &b.fsname)
}

/// Runs `one` for each operand, and prints their values with `--json`. `false`: a part was not done, and was
/// named on standard error.
///
/// # Errors
/// The user wants the command to end; [`Evicted`].
pub(super) fn each(
    places: &[Place],
    visit: &Visit,
    access: Access,
    shape: Shape,
    one: impl AsyncFn(&At<'_>) -> Result<Done>,
) -> Result<bool> {
    let account = collect(places, visit, access, shape, one)?;
    let evicted = account.evicted;
    let whole = account.print(visit.way.json, places.len());
    if evicted { Err(Evicted.into()) } else { Ok(whole) }
}

/// The same for a command that prints its values itself.
///
/// # Errors
/// As [`each`].
pub(super) fn collect(
    places: &[Place],
    visit: &Visit,
    access: Access,
    shape: Shape,
    one: impl AsyncFn(&At<'_>) -> Result<Done>,
) -> Result<Account> {
    let stop = Stop::listen()?;
    let mut account = Account::new(shape);
    for run in places.chunk_by(same_system) {
        let Some(first) = run.first() else { continue };
        let name = |place: &Place| match run.len() == places.len() {
            true => Label::new(place.path.clone()),
            false if place.path == b"/" => Label::new(place.to_string()),
            // With the bytes of its path, which the text may not have.
            false => Label::new([place.with_path("").to_string().as_bytes(), &place.path].concat()),
        };
        let mut added = 0;
        let visited = super::visit(first, visit, &stop, access, async |mount| {
            for place in run {
                stop.check()?;
                let name = name(place);
                let end = one(&At { mount, stop: &stop, place, name: &name }).await;
                account.add(&stop, &name, &place.path, end)?;
                added += 1;
            }
            Ok(())
        });
        if let Err(e) = visited {
            let lost = super::is_loss(&e);
            if !lost {
                stop.check()?;
            }
            eprintln!("ulnet lustre: {}", said(&e));
            account.ended(&said(&e), lost, run.iter().skip(added).map(name));
        }
    }
    Ok(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(texts: &[&str]) -> Vec<usize> {
        let places: Vec<Place> = texts.iter().map(|text| text.parse().unwrap()).collect();
        places.chunk_by(same_system).map(<[Place]>::len).collect()
    }

    #[test]
    fn operands_of_one_file_system_beside_each_other_share_a_visit() {
        let (a, b, c) = ("1.0.0.1@tcp:/lfs/a", "1.0.0.1@tcp:/lfs/b/c", "1.0.0.1@tcp:/lfs");
        let (other, else_where) = ("1.0.0.1@tcp:/big/a", "1.0.0.2@tcp:/lfs/a");
        assert_eq!(runs(&[a, b, c]), [3]);
        assert_eq!(runs(&[a, b, other, c]), [2, 1, 1]);
        assert_eq!(runs(&[a, else_where]), [1, 1]);
    }

    #[test]
    fn one_operand_has_one_value_while_several_and_rows_have_an_array() {
        let json = |shape, values: &[Value], operands| {
            let mut account = Account::new(shape);
            values.iter().for_each(|value| account.done(value.clone().into()));
            account.json(operands)
        };
        assert_eq!(json(Shape::Each, &[json!({ "a": 1 })], 1), json!({ "a": 1 }));
        assert_eq!(json(Shape::Each, &[json!(1), json!(2)], 2), json!([1, 2]));
        assert_eq!(json(Shape::Rows, &[json!([1, 2])], 1), json!([1, 2]));
        assert_eq!(json(Shape::Rows, &[json!([1]), json!([]), json!([2])], 3), json!([1, 2]));
        let mut account = Account::new(Shape::Rows);
        account.failed(&Label::new("/a"), "why");
        assert_eq!(account.json(1), json!([{ "name": "/a", "error": "why" }]));
    }

    #[test]
    fn each_operand_has_one_value_also_where_the_visit_fails_at_its_end() {
        for (left, lost) in [(vec![], true), (vec![], false), (vec![Label::new("/b")], false)] {
            let mut account = Account::new(Shape::Each);
            account.done(json!({ "name": "/a" }).into());
            account.ended("why", lost, left.clone().into_iter());
            assert_eq!((account.whole, account.evicted), (false, lost));
            let expected = match left.len() {
                0 => json!({ "name": "/a" }),
                _ => json!([{ "name": "/a" }, { "name": "/b", "error": "why" }]),
            };
            assert_eq!(account.json(1 + left.len()), expected);
        }
    }
}
