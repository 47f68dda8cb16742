//! Where Kafka is, and what its topics are called: `kafka://host:9092,other:9092/prefix`.

/// The first word of topics, and the name of the group of servers, unless the address says another.
const PREFIX: &str = "zticket";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaAddress {
    /// Hosts with ports, with commas between them.
    pub servers: String,
    /// Also the name of the group in which servers share the orders. Two sales on one Kafka have two prefixes.
    pub prefix: String,
}

impl KafkaAddress {
    /// `None`: it is no such address.
    pub fn parse(url: &str) -> Option<Self> {
        let (servers, prefix) = url.strip_prefix("kafka://")?.split_once('/').unwrap_or((&url["kafka://".len()..], ""));
        let prefix = if prefix.is_empty() { PREFIX } else { prefix };
        let named = prefix.len() <= 100
            && prefix.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter));
        (named && servers.split(',').all(is_server))
            .then(|| Self { servers: servers.to_owned(), prefix: prefix.to_owned() })
    }

    /// The topic of orders that wait to be written.
    pub fn requests(&self) -> String {
        format!("{}.requests", self.prefix)
    }

    /// The topic of facts about orders.
    pub fn orders(&self) -> String {
        format!("{}.orders", self.prefix)
    }
}

fn is_server(server: &str) -> bool {
    let host = |letter: char| letter.is_ascii_alphanumeric() || "-._[]:".contains(letter);
    server.rsplit_once(':').is_some_and(|(name, port)| {
        !name.is_empty() && name.chars().all(host) && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_servers_and_perhaps_a_prefix() {
        let address = KafkaAddress::parse("kafka://a:9092,b.example:9093/spring").unwrap();
        assert_eq!((address.servers.as_str(), address.prefix.as_str()), ("a:9092,b.example:9093", "spring"));
        assert_eq!(address.requests(), "spring.requests");
        for url in ["kafka://a:9092", "kafka://a:9092/"] {
            assert_eq!(KafkaAddress::parse(url).unwrap().orders(), "zticket.orders");
        }
        assert!(KafkaAddress::parse("kafka://[::1]:9092").is_some());
        for wrong in
            ["redis://a:1", "kafka://", "kafka://a", "kafka://a:0", "kafka://a:x", "kafka://a:1,", "kafka://a:1/b c"]
        {
            assert_eq!(KafkaAddress::parse(wrong), None, "{wrong}");
        }
    }
}
