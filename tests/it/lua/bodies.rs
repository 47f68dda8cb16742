//! What a script reads has a name, and the name is that of the key or field. So no value is mistaken for another.

use super::headers::{closing, each};

/// A body without its comments, with single spaces only.
fn code(body: &str) -> String {
    let lines = body.lines().map(|line| line.split("--").next().unwrap_or_default());
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// The names of a `local … =` at the end of the text.
fn names_at_the_end(text: &str) -> Option<Vec<&str>> {
    let (_, names) = text.strip_suffix(" = ")?.rsplit_once("local ")?;
    let names: Vec<&str> = names.split(", ").collect();
    let plain = |name: &&str| name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_');
    names.iter().all(plain).then_some(names)
}

/// How often a word stands alone.
fn occurrences(code: &str, word: &str) -> usize {
    let part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    code.split(|letter| !part(letter)).filter(|other| *other == word).count()
}

/// What a body calls one key, or the whole ring of pulses.
fn name_of(keys: &[String]) -> Option<String> {
    match keys {
        [key] => Some(key.to_uppercase()),
        ring if ring.iter().enumerate().all(|(slice, key)| *key == format!("pulse:{slice}")) && ring.len() == 5 => {
            Some("PULSES".to_owned())
        }
        _ => None,
    }
}

/// What is wrong with how a body names and uses its keys.
///
/// Keys are named by `local A, B = unpack(KEYS)`, `local C, D = unpack(KEYS, first)` and
/// `local PULSES = { unpack(KEYS, first, last) }`, and used by these names. `unpack(KEYS)` elsewhere uses them all.
fn wrong_keys(keys: &[String], body: &str) -> Vec<String> {
    let code = code(body);
    let (mut wrong, mut used) = (Vec::new(), vec![false; keys.len()]);
    let calls: Vec<usize> = code.match_indices("unpack(KEYS").map(|(at, _)| at).collect();
    if occurrences(&code, "KEYS") != calls.len() {
        wrong.push("KEYS is used without a name".to_owned());
    }
    for at in calls {
        let inside = &code[at + "unpack(".len()..];
        let inside = &inside[..closing(inside, '(', ')')];
        let bounds: Vec<usize> = inside.split(", ").skip(1).filter_map(|bound| bound.parse().ok()).collect();
        let first = bounds.first().copied().unwrap_or(1) - 1;
        let last = bounds.get(1).copied().unwrap_or(keys.len());
        let before = &code[..at];
        let list = before.strip_suffix("{ ");
        let Some(names) = names_at_the_end(list.unwrap_or(before)) else {
            match bounds.is_empty() {
                true => used.fill(true),
                false => wrong.push(format!("unpack({inside}) is neither named nor all keys")),
            }
            continue;
        };
        let named: Vec<&[String]> = match (list, keys.get(first..last)) {
            (Some(_), Some(keys)) => vec![keys],
            (None, Some(keys)) => keys.chunks(1).collect(),
            (_, None) => Vec::new(),
        };
        for (number, name) in names.iter().enumerate() {
            let Some(keys) = named.get(number).filter(|keys| name_of(keys).as_deref() == Some(name)) else {
                wrong.push(format!("{name} is not the name of {:?}", named.get(number).unwrap_or(&[].as_slice())));
                continue;
            };
            match occurrences(&code, name) {
                1 => wrong.push(format!("{name} is named and not used")),
                _ => used[first + number..first + number + keys.len()].fill(true),
            }
        }
    }
    wrong.extend(
        keys.iter().zip(used).filter(|(_, used)| !used).map(|(key, _)| format!("{key} is declared and not used")),
    );
    if body.contains("zt1:") {
        wrong.push("keys are never made inside a script".to_owned());
    }
    wrong
}

/// Whether the name is the field's, maybe with more words: `last_now` for `now`.
fn fits(name: &str, field: &str) -> bool {
    name == field || name.ends_with(&format!("_{field}")) || name.starts_with(&format!("{field}_"))
}

/// What is wrong with the names of the values that a body reads.
fn wrong_values(body: &str) -> Vec<String> {
    let code = code(body);
    let mut wrong = Vec::new();
    for (at, _) in code.match_indices('[') {
        let name = code[..at].rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next();
        let index: String = code[at + 1..].chars().take_while(|letter| *letter != ']').collect();
        let name = name.unwrap_or_default();
        if index.bytes().all(|digit| digit.is_ascii_digit()) && !matches!(name, "" | "ARGV") {
            wrong.push(format!("{name}[{index}] has no name"));
        }
    }
    for (at, opening) in code.match_indices("redis.call('HMGET', ") {
        let inside = &code[at + opening.len()..];
        let inside = &inside[..closing(inside, '(', ')')];
        let fields: Vec<&str> = inside.split(", ").skip(1).map(|field| field.trim_matches('\'')).collect();
        let before = code[..at].trim_end().strip_suffix("unpack(");
        let Some(names) = before.and_then(names_at_the_end) else {
            wrong.push(format!("HMGET {inside} is not unpacked to names"));
            continue;
        };
        if names.len() != fields.len() {
            wrong.push(format!("{} names for {} fields: {inside}", names.len(), fields.len()));
        }
        let unfit = names.iter().zip(&fields).filter(|(name, field)| !fits(name, field));
        wrong.extend(unfit.map(|(name, field)| format!("{name} is not a name for the field {field}")));
    }
    wrong
}

#[test]
fn a_body_uses_every_declared_key_by_its_name_and_no_other() {
    each(|source, header, body| {
        // It runs commands that name their keys themselves.
        if source.name == "event_read" {
            return;
        }
        let wrong = wrong_keys(&header.keys, body);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", source.name);
    });
}

#[test]
fn every_value_that_is_read_has_the_name_of_its_field() {
    each(|source, _, body| {
        let wrong = wrong_values(body);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", source.name);
    });
}

#[test]
fn a_key_that_is_misnamed_unused_or_unnamed_is_found() {
    let keys = ["meta", "line", "pulse:0", "pulse:1", "pulse:2", "pulse:3", "pulse:4", "back"].map(str::to_owned);
    let rest = "local PULSES = { unpack(KEYS, 3, 7) }\nlocal BACK = unpack(KEYS, 8)\nuse(META, PULSES, BACK)\n";
    let found = |body: &str| wrong_keys(&keys, &format!("{rest}{body}"));
    assert_eq!(found("local META, LINE = unpack(KEYS)\nuse(LINE)"), [""; 0]);
    assert_eq!(
        found("local META, LINE = unpack(KEYS)\n-- LINE"),
        ["LINE is named and not used", "line is declared and not used"]
    );
    assert_eq!(found("local META = unpack(KEYS)"), ["line is declared and not used"]);
    assert_eq!(found("local META = unpack(KEYS)\nredis.call('DEL', unpack(KEYS))"), [""; 0]);
    assert_eq!(found("local META = unpack(KEYS)\nuse(KEYS[2])")[0], "KEYS is used without a name");
    assert_eq!(
        found("local META = unpack(KEYS)\nuse(unpack(KEYS, 2))")[0],
        "unpack(KEYS, 2) is neither named nor all keys"
    );
    assert_eq!(found("local LINE, META = unpack(KEYS)\nuse(LINE)")[0], "LINE is not the name of [\"meta\"]");
    assert_eq!(
        found("local META, LINE = unpack(KEYS)\nuse(LINE)\nlocal PULSES = { unpack(KEYS, 2, 6) }"),
        ["PULSES is not the name of [\"line\", \"pulse:0\", \"pulse:1\", \"pulse:2\", \"pulse:3\"]"]
    );
    assert_eq!(
        found("local META, LINE = unpack(KEYS)\nuse(LINE, 'zt1:{e7}:line')"),
        ["keys are never made inside a script"]
    );
}

#[test]
fn a_value_without_a_name_or_with_the_name_of_another_is_found() {
    let read = |names: &str| format!("local {names} = unpack(redis.call('HMGET', META,\n  'now', 'sold', 'end'))");
    assert_eq!(wrong_values(&read("last_now, sold, block_end")), [""; 0]);
    assert_eq!(
        wrong_values(&read("sold, last_now, block_end")),
        ["sold is not a name for the field now", "last_now is not a name for the field sold"]
    );
    assert_eq!(wrong_values(&read("last_now, sold")), ["2 names for 3 fields: META, 'now', 'sold', 'end'"]);
    assert_eq!(
        wrong_values("local meta = redis.call('HMGET', META, 'now')\nlocal now = meta[1]"),
        ["meta[1] has no name", "HMGET META, 'now' is not unpacked to names"]
    );
    assert_eq!(wrong_values("local place, next = ARGV[1], places[i - 1] -- meta[1]"), [""; 0]);
}
