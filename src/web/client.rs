//! Which address a request comes from. A trusted proxy says it in a header; anyone else could write anything there, so their
//! header is ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use actix_web::HttpRequest;
use ipnet::IpNet;

const FORWARDED_FOR: &str = "X-Forwarded-For";
/// The part of an IPv6 address that belongs to one household or machine; its owner can vary the rest at will.
const OWN_PREFIX: u128 = !(u64::MAX as u128);

/// A client as limits count it: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client(IpAddr);

impl Client {
    pub fn of(request: &HttpRequest, proxies: &[IpNet]) -> Self {
        let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        if !trusted(proxies, peer) {
            return Self::new(peer);
        }
        let headers = request.headers().get_all(FORWARDED_FOR).map(|value| value.to_str().unwrap_or_default());
        Self::new(forwarded(headers.collect::<Vec<_>>().into_iter().rev(), proxies).unwrap_or(peer))
    }

    fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & OWN_PREFIX)),
            address => address,
        })
    }
}

/// The last address that is not a trusted proxy: every one before it could be made up. `None` if there is none, or if it is
/// not an address. Takes the header's lines from the last to the first.
fn forwarded<'a>(lines: impl Iterator<Item = &'a str>, proxies: &[IpNet]) -> Option<IpAddr> {
    for text in lines.flat_map(|line| line.rsplit(',')) {
        let address = parse(text.trim())?;
        if !trusted(proxies, address) {
            return Some(address);
        }
    }
    None
}

/// Some proxies write the port too, and brackets around IPv6.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
}

fn trusted(proxies: &[IpNet], address: IpAddr) -> bool {
    // An IPv4 address can be written as an IPv6 one, and a network in either way.
    let canonical = address.to_canonical();
    let mapped = match canonical {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    proxies.iter().any(|network| network.contains(&canonical) || network.contains(&IpAddr::V6(mapped)))
}

/// Proxies from text: addresses or networks such as 10.0.0.0/8.
pub fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse().ok().map(|address: IpAddr| IpNet::from(address)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;
    use proptest::prelude::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| parse_network(text).unwrap()).collect()
    }

    fn client(peer: &str, forwarded: &[&str], proxies: &[&str]) -> Client {
        let request = TestRequest::default().peer_addr(SocketAddr::new(peer.parse().unwrap(), 1));
        let request = forwarded.iter().fold(request, |request, line| request.append_header((FORWARDED_FOR, *line)));
        Client::of(&request.to_http_request(), &networks(proxies))
    }

    fn is(text: &str) -> Client {
        Client::new(text.parse().unwrap())
    }

    #[test]
    fn the_header_of_a_stranger_is_ignored() {
        assert_eq!(client("1.2.3.4", &["9.9.9.9"], &[]), is("1.2.3.4"));
        assert_eq!(client("1.2.3.4", &["9.9.9.9"], &["10.0.0.0/8"]), is("1.2.3.4"));
    }

    #[test]
    fn a_proxy_names_the_last_address_that_is_not_a_proxy() {
        let proxies = ["10.0.0.0/8", "::1"];
        assert_eq!(client("10.0.0.1", &["1.2.3.4"], &proxies), is("1.2.3.4"));
        assert_eq!(client("::1", &["6.6.6.6, 1.2.3.4, 10.9.9.9"], &proxies), is("1.2.3.4"));
        assert_eq!(client("10.0.0.1", &["6.6.6.6", "1.2.3.4", "10.9.9.9 , 10.2.2.2"], &proxies), is("1.2.3.4"));
        assert_eq!(client("10.0.0.1", &["junk, 1.2.3.4"], &proxies), is("1.2.3.4"));
        assert_eq!(client("10.0.0.1", &["1.2.3.4:5678"], &proxies), is("1.2.3.4"));
        assert_eq!(client("10.0.0.1", &["[2001:db8::7]:443"], &proxies), is("2001:db8::7"));
        assert_eq!(client("10.0.0.1", &["[2001:db8::7]"], &proxies), is("2001:db8::7"));
        assert_eq!(client("::ffff:10.0.0.1", &["1.2.3.4"], &proxies), is("1.2.3.4"));
    }

    #[test]
    fn a_proxy_without_a_usable_header_is_the_client() {
        let proxies = ["10.0.0.0/8"];
        for said in [&[][..], &[""], &["junk"], &["1.2.3.4, junk"], &["1.2.3.4,"], &["10.0.0.2, 10.0.0.3"], &["1.2.3"]]
        {
            assert_eq!(client("10.0.0.1", said, &proxies), is("10.0.0.1"), "{said:?}");
        }
    }

    #[test]
    fn ipv6_counts_by_network_and_mapped_ipv4_as_ipv4() {
        assert_eq!(is("2001:db8:1:2::1"), is("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(is("2001:db8:1:2::1"), is("2001:db8:1:3::1"));
        assert_eq!(is("::ffff:1.2.3.4"), is("1.2.3.4"));
        assert_ne!(is("::ffff:1.2.3.4"), is("::ffff:1.2.3.5"));
    }

    #[test]
    fn networks_are_read_or_refused() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.168.1.7", "192.168.1.7", "192.168.1.8"),
            ("0.0.0.0/0", "255.1.2.3", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("10.1.2.3/8", "10.9.9.9", "9.0.0.0"),
        ] {
            let proxies = networks(&[network]);
            assert!(trusted(&proxies, inside.parse().unwrap()) && !trusted(&proxies, outside.parse().unwrap()));
        }
        assert!(trusted(&networks(&["::/0"]), "1.2.3.4".parse().unwrap()));
        for wrong in ["", "10", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8/8", "host", "/8"] {
            assert!(parse_network(wrong).is_none(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn a_network_contains_addresses_with_its_first_bits(a: u32, b: u32, bits in 0..=32_u32) {
            let proxies = networks(&[&format!("{}/{bits}", Ipv4Addr::from(a))]);
            let alike = (a ^ b).leading_zeros() >= bits;
            prop_assert_eq!(trusted(&proxies, Ipv4Addr::from(b).into()), alike);
            prop_assert_eq!(trusted(&proxies, Ipv4Addr::from(b).to_ipv6_mapped().into()), alike);
        }

        #[test]
        fn the_last_address_counts_whatever_stands_before_it(made_up in "[ -~]{0,40}", last: u32) {
            let last = Ipv4Addr::from(last);
            prop_assume!(!last.is_loopback());
            let said = format!("{made_up},{last}");
            prop_assert_eq!(client("127.0.0.1", &[&made_up, &said], &["127.0.0.0/8"]), Client(last.into()));
        }

        #[test]
        fn any_header_is_read_without_a_panic(said in "[ -~]{0,60}", peer: u128) {
            let request = TestRequest::default().peer_addr(SocketAddr::new(Ipv6Addr::from(peer).into(), 1));
            let request = request.append_header((FORWARDED_FOR, said)).to_http_request();
            Client::of(&request, &networks(&["::/0"]));
        }
    }
}
