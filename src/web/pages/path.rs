//! Where pages send visitors.

/// Where to go on: a path of this site, or else `otherwise`.
pub fn own_path(to: Option<&str>, otherwise: &str) -> String {
    let own = |to: &&str| {
        to.starts_with('/') && !to.starts_with("//") && to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    to.filter(own).unwrap_or(otherwise).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use reqwest::Url;

    #[test]
    fn only_own_paths_are_followed() {
        for own in ["/", "/account", "/events/2/seats?section=R"] {
            assert_eq!(own_path(Some(own), "/x"), own);
        }
        for foreign in ["", "account", "//evil.example", "/\\evil.example", "https://evil.example", "/a b", "/\n", "/é"]
        {
            assert_eq!(own_path(Some(foreign), "/x"), "/x", "{foreign:?}");
        }
        assert_eq!(own_path(None, "/x"), "/x");
    }

    proptest! {
        #[test]
        fn no_text_leads_off_this_site(text in r"[/\\.:@?#a-z%\t\n ]{0,12}|(/|//|/\\)[a-z.:@/\\]{0,12}|(?s).{0,20}") {
            let here = Url::parse("http://zticket.example/account").unwrap();
            let there = here.join(&own_path(Some(&text), "/")).unwrap();
            prop_assert_eq!(there.origin(), here.origin());
        }
    }
}
