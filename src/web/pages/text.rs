//! Every text of the pages, in every language they speak. A text without one of them does not compile; that none is empty
//! and that both have the same gaps is tested.

use std::fmt::Display;

use crate::base::control::Reason;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lang {
    En,
    Ko,
}

impl Lang {
    pub const ALL: [Lang; 2] = [Lang::Ko, Lang::En];

    pub fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Ko => "ko",
        }
    }

    /// As its speakers call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::Ko => "한국어",
        }
    }

    /// What an operator says about a pause.
    pub fn of(self, reason: &Reason) -> &str {
        match self {
            Self::En => &reason.en,
            Self::Ko => &reason.ko,
        }
    }

    pub fn parse(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lang| lang.code() == code)
    }

    /// The best of an Accept-Language header; English if it names none of ours.
    pub fn accepted(header: &str) -> Self {
        let wish = |part: &str| {
            let (tag, weight) = part.split_once(';').unwrap_or((part, "q=1"));
            let code = tag.trim().split('-').next()?.to_ascii_lowercase();
            let quality: f32 = weight.trim().strip_prefix("q=")?.parse().ok()?;
            let quality = Some(quality).filter(|quality| *quality > 0.0 && *quality <= 1.0)?;
            Some((quality, Self::parse(&code)?))
        };
        let wishes = header.split(',').filter_map(wish);
        // Of equal ones the first counts.
        let best = wishes.fold(None, |best: Option<(f32, Self)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        });
        best.map_or(Self::En, |(_, lang)| lang)
    }

    pub fn texts(self) -> &'static Texts {
        match self {
            Self::En => &EN,
            Self::Ko => &KO,
        }
    }
}

/// Puts values into the gaps of a text: `{}`, in order.
pub fn fill(text: &str, values: &[&dyn Display]) -> String {
    let mut parts = text.split("{}");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for (part, value) in parts.zip(values) {
        filled.push_str(&value.to_string());
        filled.push_str(part);
    }
    filled
}

/// A list of texts: name, English, Korean.
macro_rules! texts {
    ($list:ident { $( $name:ident: $en:literal, $ko:literal; )* }) => {
        pub struct $list { $( pub $name: &'static str, )* }
        static EN: $list = $list { $( $name: $en, )* };
        static KO: $list = $list { $( $name: $ko, )* };
        #[cfg(test)]
        pub(crate) const PAIRS: &[(&str, &str, &str)] = &[$( (stringify!($name), $en, $ko), )*];
    };
}
pub(super) use texts;

texts! { Texts {
    skip: "Skip to content", "본문으로 건너뛰기";
    concerts: "Concerts", "공연";
    account: "Account", "내 계정";
    sign_in: "Sign in", "로그인";
    language: "Language", "언어";
    footer: "First come, first served. Nobody overtakes.", "먼저 온 순서대로. 아무도 앞지르지 않습니다.";

    home_lead: "Join the line, see your true place in it, and take your seat when it is your turn.", "줄을 서고, 내 순서를 있는 그대로 보고, 차례가 되면 자리를 고르세요.";
    on_now: "On sale and coming up", "예매 중 · 예매 예정";
    nothing_on: "Nothing is on sale at the moment.", "지금은 예매할 수 있는 공연이 없습니다.";
    open_event: "Free event", "무료 공연";
    from_price: "from {}", "{}부터";
    free: "Free", "무료";
    seats_left: "{} seats left", "남은 좌석 {}석";
    n_waiting: "{} waiting", "{}명 대기 중";
    n_dates: "{} dates", "공연 {}회";
    one_date: "One date", "공연 1회";
    fastest: "Fastest sold out", "최단 매진";
    best_selling: "Best selling", "많이 팔린 공연";
    today: "today", "오늘";
    this_week: "this week", "이번 주";
    in_all: "in all", "전체";
    n_tickets: "{} sold", "{}매 판매";
    sold_out_in: "in {}", "{} 만에";
    nothing_yet: "Nothing yet.", "아직 없습니다.";

    scheduled: "Opens soon", "예매 예정";
    on_sale: "On sale", "예매 중";
    paused: "Paused", "일시 중지";
    closed: "Closed", "예매 종료";
    sold_out: "Sold out", "매진";

    dates: "Dates", "공연 일정";
    see_date: "See seats and prices", "좌석과 가격 보기";
    booking_from: "Booking opens {}", "예매 시작 {}";
    booking_until: "Booking until {}", "예매 마감 {}";
    opens_in: "Opens in", "예매 시작까지";
    opens_now: "It is time: load the page again.", "예매가 시작되었습니다. 새로 고침해 주세요.";
    sections: "Sections and prices", "구역과 가격";
    section: "Section", "구역";
    all_sections: "Any section", "모든 구역";
    hall: "Hall", "전체";
    price: "Price", "가격";
    left: "Left", "남은 좌석";
    join: "Join the line", "줄 서기";
    to_my_place: "Back to my place in line", "내 순서로 돌아가기";
    to_my_seats: "It is your turn: choose seats", "내 차례입니다: 좌석 고르기";
    rule_one_place: "Everyone has one place in this line, so it takes an account.", "한 사람에 한 자리만 설 수 있어 계정이 필요합니다.";
    rule_max: "Up to {} seats for each buyer.", "한 번에 {}석까지 살 수 있습니다.";
    rule_cancel: "Tickets can be cancelled until {}.", "{}까지 취소할 수 있습니다.";
    sign_up_first: "Sign up to join", "가입하고 줄 서기";

    queue_title: "Your place in line", "대기 순서";
    your_number: "Your number", "내 순서";
    ahead: "{} people ahead of you", "내 앞에 {}명";
    one_ahead: "One person ahead of you", "내 앞에 1명";
    nobody_ahead: "You are next", "다음 차례입니다";
    progress: "Way to the door", "입장까지";
    wait_range: "About {} to {}", "약 {} ~ {}";
    wait_unknown: "The wait is not known yet", "아직 대기 시간을 알 수 없습니다";
    wait: "Estimated wait", "예상 대기 시간";
    left_for_you: "Seats left", "남은 좌석";
    waiting_behind: "In line", "전체 대기";
    enough: "There are more seats than people ahead of you.", "앞사람보다 남은 좌석이 많습니다.";
    scarce: "More people are ahead of you than seats are left. Seats that are not paid for come back.", "남은 좌석보다 앞사람이 많습니다. 결제되지 않은 좌석은 다시 나옵니다.";
    next_hint: "Keep this page open. When it is your turn the seats open by themselves, and you have a few minutes to choose and pay.", "이 페이지를 열어 두세요. 차례가 되면 좌석 화면이 저절로 열리고, 몇 분 안에 고르고 결제하면 됩니다.";
    no_script_hint: "This page loads itself again from time to time.", "이 페이지는 주기적으로 새로 고쳐집니다.";
    order_title: "Your order is being written", "주문을 처리하고 있습니다";
    order_hint: "You need not do anything. The time of your seats stands still, and you may close this page and come back to it.", "기다리기만 하면 됩니다. 좌석 시간은 멈춰 있고, 이 페이지를 닫았다가 다시 열어도 됩니다.";
    order_ahead: "{} orders are before yours.", "앞에 주문이 {}건 있습니다.";
    order_next: "It is the next one to be written.", "바로 다음 차례입니다.";
    order_now: "It is being written at this moment.", "지금 처리하는 중입니다.";
    order_seats: "Seats: {}", "좌석: {}";
    order_number: "Order number", "주문 번호";
    order_back: "Take this order back", "주문 취소하기";
    order_failed: "This order was not written", "주문이 처리되지 않았습니다";
    order_failed_hint: "Nothing was bought, and nothing was charged. Please choose your seats again.", "구매되지 않았고 결제도 되지 않았습니다. 좌석을 다시 골라 주세요.";
    order_again: "Choose seats", "좌석 고르기";
    leave: "Leave the line", "줄에서 나가기";
    other_device: "Take my place to another device", "다른 기기에서 이어 하기";
    other_device_hint: "Open this link there. Whoever has it has your place.", "그 기기에서 이 링크를 여세요. 링크를 가진 사람이 내 순서를 갖게 됩니다.";
    take_place_title: "Go on with a place from another device?", "다른 기기의 순서로 이어 할까요?";
    take_place_hint: "This replaces the place you may have here. Do it only with a link of your own.", "여기에 있던 순서는 이 순서로 바뀝니다. 내가 만든 링크일 때만 계속하세요.";
    take_place: "Go on with this place", "이 순서로 계속하기";
    pause_title: "Paused for a moment", "잠시 멈췄습니다";
    pause_hint: "Nobody is let in right now. Your place is kept.", "지금은 아무도 입장하지 않습니다. 내 순서는 그대로입니다.";
    your_turn: "It is your turn", "내 차례입니다";
    sold_out_title: "Everything is sold", "모두 매진되었습니다";
    sold_out_hint: "If a ticket is cancelled, its seat goes to the line. Your place is kept while this page is open.", "취소표가 나오면 줄에 선 순서대로 돌아갑니다. 이 페이지를 열어 두면 순서가 유지됩니다.";
    expired_title: "Your place is over", "순서가 끝났습니다";
    expired_hint: "You left, were away too long, or your time inside ended.", "줄에서 나갔거나, 오래 자리를 비웠거나, 입장 시간이 끝났습니다.";
    bought_hint: "If you bought tickets, they are here:", "구매한 티켓은 여기에서 볼 수 있습니다:";
    join_again: "Join again", "다시 줄 서기";
    closed_title: "The sale is closed", "예매가 끝났습니다";
    closed_hint: "Nobody can join any more.", "더 이상 줄을 설 수 없습니다.";
    full_title: "The line is full", "줄이 가득 찼습니다";
    full_hint: "Please try again in a little while.", "잠시 후 다시 시도해 주세요.";
    not_open_title: "Booking has not opened yet", "아직 예매 전입니다";
    no_place_title: "You have no place in this line", "이 줄에 내 순서가 없습니다";
    other_events: "Other concerts", "다른 공연 보기";
    offline: "No connection. Trying again …", "연결이 끊겼습니다. 다시 시도하는 중 …";

    seats_title: "Choose your seats", "좌석 선택";
    stage: "Stage", "무대";
    row: "Row {}", "{}열";
    time_left: "Time left", "남은 시간";
    hurry: "Less than a minute left", "1분도 남지 않았습니다";
    available: "available", "선택 가능";
    held: "held by someone", "다른 사람이 선택 중";
    sold: "sold", "판매됨";
    mine: "yours", "내 좌석";
    legend: "What the signs mean", "표시 안내";
    best_title: "Best available", "좋은 자리 자동 선택";
    how_many: "How many", "인원";
    find_best: "Find the best seats", "좋은 자리 찾기";
    basket: "Your seats", "선택한 좌석";
    basket_empty: "Choose seats on the map, or let us find the best ones.", "좌석표에서 고르거나 자동 선택을 이용하세요.";
    held_for: "Kept for you for", "좌석 유지 시간";
    give_back: "Give back", "선택 취소";
    total: "Total", "합계";
    pay: "Pay {}", "{} 결제하기";
    take_free: "Get the tickets", "티켓 받기";
    sign_up_to_pay: "Sign up to pay", "가입하고 결제하기";
    your_balance: "Your balance", "내 잔액";
    done_choosing: "Leave and give everything back", "모두 취소하고 나가기";
    taken_one: "Someone was faster: {} is taken.", "{} 좌석을 다른 분이 먼저 선택했습니다.";
    taken_more: "Someone was faster: {} are taken. None of your choice was kept.", "{} 좌석을 다른 분이 먼저 선택했습니다. 함께 고른 좌석은 유지되지 않았습니다.";
    nearest: "Take {} instead", "{} 좌석으로 선택";
    too_many: "That is more than one buyer can hold. Give one back first.", "한 번에 살 수 있는 좌석 수를 넘었습니다. 먼저 하나를 취소하세요.";
    person_first: "Sign in to choose seats that cost something. Your time inside keeps running while you do.", "가격이 있는 좌석은 로그인한 뒤 선택할 수 있습니다. 그동안에도 남은 시간은 줄어듭니다.";
    ticket_limit: "With these seats you would have more tickets of this event than one person may have. Give some back.", "한 사람이 가질 수 있는 티켓 수를 넘게 됩니다. 좌석을 줄여 주세요.";
    place_of_another: "Someone else signed in and uses this place in line. Sign in as that person to go on.", "이 순번은 다른 사람이 로그인해서 사용하고 있습니다. 그 계정으로 로그인하면 계속할 수 있습니다.";
    not_together: "There are not so many free seats next to each other. Try fewer, or another section.", "나란히 붙은 빈 좌석이 부족합니다. 인원을 줄이거나 다른 구역을 선택해 보세요.";
    back_to_sections: "All sections", "구역 전체 보기";
    pick_section: "Choose a section", "구역을 고르세요";
    skip_map: "Skip the seat map", "좌석표 건너뛰기";

    ticket: "Ticket", "티켓";
    ticket_number: "Ticket number", "티켓 번호";
    seat: "Seat", "좌석";
    date: "Date", "일시";
    paid: "Paid", "결제 완료";
    cancelled: "Cancelled", "취소됨";
    status: "Status", "상태";
    qr_hint: "Show this code at the door.", "입장할 때 이 코드를 보여 주세요.";
    qr_label: "QR code of ticket {}", "티켓 {}의 QR 코드";
    print: "Print", "인쇄";
    cancel_ticket: "Cancel this ticket", "이 티켓 취소";
    cancel_money: "{} comes back to your balance, and the seat is on sale again.", "{}이 잔액으로 돌아오고 좌석은 다시 판매됩니다.";
    cancel_free: "The seat is on sale again.", "좌석은 다시 판매됩니다.";
    cancel_sure: "Yes, cancel it", "네, 취소합니다";
    cancel_over: "This ticket cannot be cancelled any more.", "이 티켓은 더 이상 취소할 수 없습니다.";
    of_nobody: "Tickets in this browser", "이 브라우저의 티켓";
    of_nobody_hint: "Bought without signing in. Open one to keep it in your account.", "로그인하지 않고 예매한 티켓입니다. 티켓을 열어 내 계정에 보관할 수 있습니다.";
    nobodys: "This ticket was bought without signing in. This browser alone has it.", "로그인하지 않고 예매한 티켓입니다. 이 브라우저에서만 볼 수 있습니다.";
    claim: "Keep it in my account", "내 계정에 보관하기";
    claim_limit: "With this ticket you would have more tickets of this event than one person may have.", "이 티켓까지 보관하면 한 사람이 가질 수 있는 티켓 수를 넘게 됩니다.";
    same_order: "Bought together", "함께 구매한 티켓";
    bought: "Here is your ticket. Enjoy!", "예매가 끝났습니다. 즐거운 관람 되세요!";

    sign_up: "Sign up", "가입";
    name: "Name", "이름";
    name_hint: "A name is all it takes.", "이름만 있으면 됩니다.";
    have_key: "I have an account", "이미 계정이 있어요";
    api_key: "Key", "키";
    key_hint: "A key that you made in your account, or got when you signed up with a program.", "계정에서 만든 키, 또는 프로그램으로 가입할 때 받은 키입니다.";
    access: "Keys and browsers", "키와 브라우저";
    keys_hint: "A key signs you in on another device, and lets a program act for you.", "키로 다른 기기에서 로그인하고, 프로그램이 대신 예매할 수 있습니다.";
    key_for: "What is the key for?", "어디에 쓸 키인가요?";
    make_key: "Make a key", "키 만들기";
    too_many_keys: "You have as many keys as you can have. Revoke one of them first.", "키를 더 만들 수 없습니다. 먼저 하나를 폐기하세요.";
    new_key: "Your new key", "새 키";
    new_key_hint: "Copy it now. It is not shown again.", "지금 복사해 두세요. 다시 표시되지 않습니다.";
    key_warning: "Whoever has this key has your account. Keep it to yourself.", "이 키를 가진 사람은 내 계정을 쓸 수 있습니다. 다른 사람에게 알려 주지 마세요.";
    noted: "I have copied it", "복사했습니다";
    revoke: "Revoke", "폐기";
    browsers: "Signed-in browsers", "로그인된 브라우저";
    this_browser: "this browser", "이 브라우저";
    some_browser: "A browser", "브라우저";
    no_key: "You have no key. If you sign out without one, you cannot come back to this account.", "키가 없습니다. 키 없이 로그아웃하면 이 계정에 다시 들어올 수 없습니다.";
    sign_out_anyway: "Sign out for good", "그래도 로그아웃";
    wrong_key: "There is no account with this key.", "이 키를 가진 계정이 없습니다.";
    wrong_name: "A name has 1 to 50 letters.", "이름은 1~50자로 적어 주세요.";
    hello: "Hello, {}", "{}님, 안녕하세요";
    balance: "Balance", "잔액";
    charge: "Charge", "충전";
    amount: "Amount", "금액";
    charge_hint: "Whole amounts from 1 to {}. No real money moves.", "1~{} 사이의 금액. 실제 돈은 오가지 않습니다.";
    wrong_amount: "Enter a whole amount from 1 to {}.", "1~{} 사이의 금액을 입력해 주세요.";
    balance_limit: "Your balance cannot grow that large.", "잔액이 한도를 넘습니다.";
    charged: "Charged. Your balance is {}.", "충전되었습니다. 잔액은 {}입니다.";
    too_little: "You need {} and have {}. Charge at least {}, then go on paying: your seats are kept.", "{}이 필요한데 잔액이 {}입니다. {} 이상 충전하고 결제를 이어 가세요. 좌석은 유지됩니다.";
    go_on: "Go on", "계속하기";
    movements: "Movements", "거래 내역";
    kind_charge: "Charge", "충전";
    kind_payment: "Payment", "결제";
    kind_refund: "Refund", "환불";
    when: "When", "언제";
    what: "What", "내용";
    after: "Balance after", "이후 잔액";
    my_tickets: "My tickets", "내 티켓";
    no_tickets: "No tickets yet.", "아직 티켓이 없습니다.";
    no_movements: "No movements yet.", "아직 거래가 없습니다.";
    older: "Older", "이전 내역";
    sign_out: "Sign out", "로그아웃";

    error_404: "There is nothing here", "찾을 수 없습니다";
    error_404_hint: "The page does not exist, or it is not yours to see.", "없는 페이지이거나 볼 수 없는 페이지입니다.";
    error_400: "That did not work", "요청을 처리할 수 없습니다";
    error_400_hint: "Something in the request is wrong. Go back and try again.", "요청에 잘못된 내용이 있습니다. 돌아가서 다시 시도해 주세요.";
    error_403: "Not from here", "허용되지 않은 요청입니다";
    error_403_hint: "This came from another site, so it was not carried out.", "다른 사이트에서 보낸 요청이라 처리하지 않았습니다.";
    error_429: "Too many at once", "요청이 너무 많습니다";
    error_429_hint: "Very many requests come from your network right now. Wait a moment and try again.", "같은 네트워크에서 보낸 요청이 너무 많습니다. 잠시 뒤 다시 시도해 주세요.";
    error_413_hint: "What was sent is too long. Go back and try again with less.", "보낸 내용이 너무 깁니다. 돌아가서 내용을 줄여 다시 시도해 주세요.";
    error_408_hint: "What was sent took too long to arrive. Check your connection and try again.", "요청이 도착하는 데 너무 오래 걸렸습니다. 인터넷 연결을 확인하고 다시 시도해 주세요.";
    error_500: "Something went wrong on our side", "문제가 생겼습니다";
    error_500_hint: "It was noted. Please try again.", "기록해 두었습니다. 다시 시도해 주세요.";
    error_503: "One moment, please", "잠시만 기다려 주세요";
    error_503_hint: "We cannot answer right now. Nothing is lost: try again in a few seconds.", "지금은 응답할 수 없습니다. 잃어버린 것은 없으니 몇 초 뒤 다시 시도해 주세요.";
    try_again: "Try again", "다시 시도";
    home: "To the concerts", "공연 보러 가기";

    hours: "{} h {} min", "{}시간 {}분";
    minutes: "{} min", "{}분";
    seconds: "{} s", "{}초";
    weekdays: "Mon Tue Wed Thu Fri Sat Sun", "월 화 수 목 금 토 일";
    months: "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", "1 2 3 4 5 6 7 8 9 10 11 12";
} }

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every text is there in every language, with the same gaps.
    pub(crate) fn check_pairs(pairs: &[(&str, &str, &str)]) {
        for (name, en, ko) in pairs {
            for text in [en, ko] {
                assert!(!text.trim().is_empty(), "{name} lacks a language");
            }
            assert_eq!(en.matches("{}").count(), ko.matches("{}").count(), "{name}");
            let korean = ko.chars().any(|letter| ('가'..='힣').contains(&letter));
            assert!(korean || *name == "months", "{name} is not in Korean: {ko}");
        }
    }

    #[test]
    fn every_text_is_there_in_every_language_with_the_same_gaps() {
        check_pairs(PAIRS);
    }

    #[test]
    fn the_language_is_the_best_the_browser_asks_for() {
        for (header, lang) in [
            ("ko-KR,ko;q=0.9,en;q=0.8", Lang::Ko),
            ("en-US,en;q=0.9,ko;q=0.8", Lang::En),
            ("de,ko;q=0.5", Lang::Ko),
            ("ko;q=0.4, en;q=0.6", Lang::En),
            ("ko-KR , ko; q=0.9, en ; q=0.8", Lang::Ko),
            ("de, ko; q=0.5", Lang::Ko),
            ("en;q=0.5, ko;q=inf", Lang::En),
            ("ko;q=0, *", Lang::En),
            ("de", Lang::En),
            ("", Lang::En),
            (";;,q=", Lang::En),
        ] {
            assert_eq!(Lang::accepted(header), lang, "{header}");
        }
    }

    #[test]
    fn gaps_are_filled_in_order() {
        assert_eq!(fill("{} of {}", &[&1, &"two"]), "1 of two");
        assert_eq!(fill("none", &[]), "none");
    }

    proptest! {
        #[test]
        fn the_language_with_more_weight_is_spoken(ko in 1..=1000_u32, en in 1..=1000_u32, gap in " {0,2}", other in "[a-z]{3,8}") {
            let weight = |thousandths: u32| format!("{gap};{gap}q={}.{:03}", thousandths / 1000, thousandths % 1000);
            let header = format!("{other},{gap}ko-KR{},{gap}EN{}", weight(ko), weight(en));
            prop_assert_eq!(Lang::accepted(&header), if ko >= en { Lang::Ko } else { Lang::En });
        }

        #[test]
        fn any_header_names_a_language(header in r"[a-z;=q0-9., *-]{0,40}|(?s).{0,40}") {
            let lang = Lang::accepted(&header);
            prop_assert!(lang == Lang::En || header.to_ascii_lowercase().contains("ko"));
            prop_assert_eq!(Lang::parse(lang.code()), Some(lang));
        }
    }
}
