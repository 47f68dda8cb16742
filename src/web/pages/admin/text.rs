//! The texts of the console.

use crate::web::pages::text::{Lang, texts};

impl Lang {
    pub fn console(self) -> &'static Console {
        match self {
            Self::En => &EN,
            Self::Ko => &KO,
        }
    }
}

texts! { Console {
    console: "Console", "운영 콘솔";
    sign_in_title: "Sign in to the console", "운영 콘솔 로그인";
    key: "Operator key", "운영자 키";
    key_hint: "The key that zticket operator add printed.", "zticket operator add 명령이 출력한 키를 입력하세요.";
    wrong_key: "There is no operator with this key. Check it, or ask an admin for a new one.", "이 키를 가진 운영자가 없습니다. 키를 확인하거나 관리자에게 새 키를 요청하세요.";
    sign_in: "Sign in", "로그인";
    sign_out: "Sign out", "로그아웃";
    signed_in_as: "{} ({})", "{} ({})님";

    sales: "Sales", "판매 현황";
    audit: "Audit log", "감사 기록";
    new_concert: "New concert", "새 공연";
    tickets: "Tickets", "티켓";
    needs_attention: "What needs attention comes first.", "확인이 필요한 판매가 먼저 나옵니다.";
    no_sales: "There is no event yet.", "아직 공연이 없습니다.";
    more: "More", "더 보기";
    older: "Older", "이전 기록";

    troubles: "Recent warnings of this server", "이 서버의 최근 경고";
    no_troubles: "None. Other servers have their own.", "없습니다. 다른 서버의 경고는 그 서버에서 볼 수 있습니다.";

    open: "Open", "판매 중";
    paused: "Paused", "일시 중지";
    closed: "Closed", "종료";
    not_yet: "Not on sale yet", "예매 전";
    booking_over: "Booking is over", "예매 마감";
    to_console: "To the console", "운영 콘솔로";
    attention_lost: "Redis and database disagree: nothing is sold", "Redis와 데이터베이스가 달라 판매가 멈췄습니다";
    attention_old: "No fresh figures", "최신 수치가 없습니다";

    event: "Event", "공연";
    waiting: "Waiting", "대기";
    absent: "{} of them silent: passed over until they ask again", "그중 {}명은 응답이 없어 다시 물어볼 때까지 건너뜁니다";
    inside: "Inside", "입장";
    of: "{} of {}", "{} / 전체 {}";
    held: "Held", "선점";
    sold: "Sold", "판매";
    left: "Left", "남은 좌석";
    taken: "Money taken", "판매 금액";
    pace: "Let in per second", "초당 입장";
    ticket_pace: "Tickets per second", "초당 판매";
    swept: "Dropped for silence", "응답이 없어 빠짐";
    gave_up: "Gave up", "스스로 나감";
    overdue: "Passes run out", "시간이 끝남";
    refused_lately: "Refused in the last hour", "최근 1시간 동안 거절";
    score: "Waiting times kept", "지켜진 대기 시간";
    unknown: "–", "알 수 없음";
    state: "State", "상태";

    last_hour: "The last hour", "최근 1시간";
    chart_of: "{}: {} now, at most {}", "{}: 지금 {}, 최고 {}";
    no_points: "No figures yet: they begin when somebody asks about the event.", "아직 기록이 없습니다. 누군가 공연을 찾으면 시작됩니다.";
    hall: "The hall", "좌석 배치";
    hall_of: "{}: {} of {} sold, {} held", "{}: {} / {}석 판매, {}석 선점";

    pause: "Pause", "일시 중지";
    pause_hint: "During a pause nobody is let in. Visitors keep their places, and people inside can still buy.", "일시 중지하는 동안에는 아무도 입장하지 않습니다. 대기 순서는 그대로이고, 입장한 사람은 계속 살 수 있습니다.";
    reason: "What visitors read (both languages, or none)", "방문자에게 보일 이유 (두 언어 모두, 또는 비워 두기)";
    reason_ko: "In Korean", "한국어";
    reason_en: "In English", "영어";
    preview: "Preview", "미리 보기";
    visitors_read: "Visitors will read:", "방문자에게 이렇게 보입니다:";
    resume: "Resume", "다시 시작";
    close: "Close the sale", "판매 종료";
    close_hint: "Nobody can join any more, and those who wait are told that it is over. People inside can still buy.", "더 이상 줄을 설 수 없고, 기다리던 사람에게는 끝났다고 알립니다. 입장한 사람은 계속 살 수 있습니다.";
    close_sure: "Close it", "종료하기";
    reopen: "Reopen the sale", "판매 다시 열기";

    settings: "Settings", "설정";
    settings_hint: "In force on every server within a second. Empty puts a setting back to the configuration.", "1초 안에 모든 서버에 적용됩니다. 비워 두면 기본 설정으로 돌아갑니다.";
    changed: "changed", "변경됨";
    batch: "Most people let in at once", "한 번에 들이는 최대 인원";
    interval: "Milliseconds between two admissions", "입장 간격 (밀리초)";
    max_active: "Most people inside", "동시에 입장하는 최대 인원";
    active_ttl: "Seconds a pass lasts", "입장 유지 시간 (초)";
    hold_ttl: "Seconds a seat is held", "좌석 선점 시간 (초)";
    queue_ttl: "Seconds a visitor may be silent", "응답 없이 기다릴 수 있는 시간 (초)";
    max_queue: "Most people waiting (0: no limit)", "최대 대기 인원 (0: 제한 없음)";
    seats_per_pass: "Seats in one visit", "한 번에 살 수 있는 좌석";
    tickets_per_person: "Tickets for one person (0: no limit)", "한 사람이 가질 수 있는 티켓 (0: 제한 없음)";
    save: "Save", "저장";
    what_if: "With these settings the last person in line waits about {}. Now it is {}.", "이렇게 바꾸면 마지막 사람은 약 {} 기다립니다. 지금은 {}입니다.";
    what_if_unknown: "Nobody can tell yet how long the last person in line would wait.", "마지막 사람이 얼마나 기다릴지 아직 알 수 없습니다.";
    range: "{} to {}", "{}에서 {}";
    unknown_wait: "not known", "알 수 없음";

    kick: "End a place", "자리 끝내기";
    kick_hint: "The token of a visitor, from the link to their place. Their place or pass ends, and their seats become free.", "방문자의 토큰입니다. 순서 링크에 들어 있습니다. 순서나 입장이 끝나고 잡아 둔 좌석이 풀립니다.";
    token: "Token", "토큰";
    kick_sure: "End it", "끝내기";

    saved: "Done. It is in force.", "적용되었습니다.";
    kept: "Kept. Redis does not take it yet: it comes into force when it does.", "저장했습니다. Redis가 아직 받지 못해 곧 적용됩니다.";
    refused: "Nothing was changed.", "바뀐 것이 없습니다.";
    rule_pass: "A pass has to last at least as long as a hold.", "입장 유지 시간은 좌석 선점 시간보다 짧을 수 없습니다.";
    rule_sync: "A hold has to last longer than the servers take to settle sales (ZTICKET_SYNC_INTERVAL_MS).", "좌석 선점 시간은 판매 정리 간격(ZTICKET_SYNC_INTERVAL_MS)보다 길어야 합니다.";
    rule_closed: "The sale is closed. Reopen it first.", "판매가 종료되었습니다. 먼저 다시 여세요.";
    rule_paused: "The sale is paused, not closed. Resume it.", "판매가 종료된 것이 아니라 일시 중지되었습니다. 다시 시작하세요.";
    refused_both: "Give the reason in both languages, each in one line of at most 200 letters, or leave both empty.", "이유는 두 언어로 각각 200자 이내 한 줄로 쓰거나 모두 비워 두세요.";
    refused_number: "{} is a whole number from {} to {}.", "{}: {}부터 {}까지의 정수를 입력하세요.";
    refused_stale: "Someone else changed the settings meanwhile. Look at them and save again.", "그사이 다른 운영자가 설정을 바꿨습니다. 확인하고 다시 저장하세요.";
    refused_token: "This is no token of this event. Copy all of it, with its hyphens.", "이 공연의 토큰이 아닙니다. 하이픈까지 전부 복사하세요.";
    refused_over: "This place is over already.", "이미 끝난 자리입니다.";
    role_too_low: "Your role does not allow this", "권한이 없습니다";
    role_hint: "You are signed in as {}. Ask an admin, or sign in with another key.", "{} 권한으로 로그인했습니다. 관리자에게 요청하거나 다른 키로 로그인하세요.";

    title: "Title", "제목";
    description: "Description", "설명";
    opens_at: "Booking opens", "예매 시작";
    closes_at: "Booking closes", "예매 마감";
    starts_at: "Dates, one in each line, such as 2027-03-01 19:30", "공연 일시 (한 줄에 하나씩, 예: 2027-03-01 19:30)";
    time_zone: "All times are in {}.", "모든 시각은 {} 기준입니다.";
    cancel_hours: "Hours before the start until which tickets can be cancelled (empty: until it starts)", "공연 몇 시간 전까지 취소할 수 있는지 (비워 두면 시작 전까지)";
    one_place: "One place in line for each person (they need an account)", "한 사람이 한 자리만 서기 (계정 필요)";
    hall_plan: "Sections from the stage back, one in each line: name, price, rows × seats, or the length of each row", "무대에서 가까운 순서로 구역을 한 줄에 하나씩: 이름, 가격, 줄 수 × 좌석 수 또는 줄마다 좌석 수";
    hall_plan_example: "R, 132000, 18 20 22", "R석, 132000, 18 20 22";
    create: "Set it up", "공연 만들기";
    create_hint: "Seats and prices cannot be changed afterwards.", "좌석과 가격은 나중에 바꿀 수 없습니다.";
    hall_total: "{} seats, {} in all if every seat is sold", "{}석, 모두 팔리면 {}";
    section_total: "{}: {} seats at {}", "{}: {}석, {}";
    refused_time: "Write times as 2027-03-01 19:30: {}", "시각은 2027-03-01 19:30처럼 쓰세요: {}";
    refused_no_time: "Say when booking opens and closes.", "예매 시작과 마감 시각을 입력하세요.";
    refused_skipped: "There is no such time in {}: {} falls into a change of the clocks.", "{}에는 없는 시각입니다. {}은(는) 서머타임으로 건너뜁니다.";
    refused_hours: "The hours are a whole number up to {}.", "시간은 {} 이하의 정수로 쓰세요.";
    bad_title: "Give the concert a title of 1 to 200 letters.", "제목을 1자에서 200자까지 입력하세요.";
    bad_description: "Shorten the description to 5,000 letters.", "설명을 5,000자까지로 줄이세요.";
    bad_window: "Let booking close after it opens.", "예매 마감을 예매 시작보다 늦게 정하세요.";
    bad_closed: "Booking would be over already. Let it close later.", "예매 마감이 이미 지났습니다. 더 늦은 시각을 입력하세요.";
    bad_dates: "Give 1 to 100 dates.", "공연 일시를 1개에서 100개까지 입력하세요.";
    bad_past: "This date is in the past: {}", "이미 지난 일시입니다: {}";
    bad_twice: "This date is there twice: {}", "같은 일시가 두 번 있습니다: {}";
    bad_early: "This date is before booking opens: {}", "예매 시작보다 이른 일시입니다: {}";
    bad_cancel: "Let cancelling end when the concert begins, or before.", "취소 마감은 공연 시작보다 늦을 수 없습니다.";
    bad_year: "Check the year: {}", "연도를 확인하세요: {}";
    bad_name: "Give section {} another name: up to 12 letters, digits and inner spaces.", "{} 구역의 이름을 바꾸세요. 글자와 숫자, 중간 공백만 12자까지 쓸 수 있습니다.";
    bad_section_twice: "Two sections are called {}. Give one another name.", "{} 구역이 두 번 있습니다. 이름을 다르게 지으세요.";
    bad_price: "Give section {} a price from 0 to {}.", "{} 구역의 가격을 0에서 {} 사이로 입력하세요.";
    bad_rows: "Give section {} rows of 1 to {} seats.", "{} 구역은 한 줄에 1석에서 {}석까지 둘 수 있습니다.";
    bad_seats: "A hall has 1 to {} seats; this one has {}.", "좌석은 1석에서 {}석까지 둘 수 있습니다. 지금은 {}석입니다.";
    refused_line: "Line {} of the hall: write name, price, rows × seats.", "좌석 배치 {}번째 줄: 이름, 가격, 줄 수 × 좌석 수로 쓰세요.";

    find_tickets: "Find tickets", "티켓 찾기";
    wanted: "Ticket number, buyer's number or name, or a seat such as R-A10", "티켓 번호, 구매자 번호나 이름, 또는 R-A10 같은 좌석";
    in_event: "Number of the event, for a seat", "공연 번호 (좌석으로 찾을 때)";
    find: "Find", "찾기";
    none_found: "No ticket was found. Names and numbers must be complete; a seat needs the number of its event.", "티켓을 찾지 못했습니다. 이름과 번호는 정확히 입력하고, 좌석은 공연 번호도 함께 입력하세요.";
    number: "Number", "번호";
    seat: "Seat", "좌석";
    price: "Price", "가격";
    buyer: "Buyer", "구매자";
    guest: "without an account", "비회원";
    cancel: "Cancel it", "취소하기";
    cancel_hint: "The buyer gets the money back, also after the deadline, and the seat is on sale again. This cannot be undone.", "마감 뒤에도 금액이 환불되고 좌석은 다시 판매됩니다. 되돌릴 수 없습니다.";
    why: "Why (for the audit log)", "이유 (감사 기록에 남습니다)";
    cancelled: "Cancelled", "취소됨";
    paid: "Paid", "결제됨";
    refused_why: "Say why, in one line of at most 500 letters.", "이유를 500자 이내 한 줄로 쓰세요.";

    when: "When", "시각";
    who: "Who", "운영자";
    what: "What", "내용";
    difference: "Before → after", "이전 → 이후";
    did_pause: "paused the sale", "판매를 일시 중지";
    did_resume: "resumed the sale", "판매를 다시 시작";
    did_close: "closed the sale", "판매를 종료";
    did_reopen: "reopened the sale", "판매를 다시 엶";
    did_policy: "changed settings", "설정을 변경";
    did_kick: "ended a place", "자리를 끝냄";
    did_not_kick: "ending a place failed", "자리를 끝내지 못함";
    did_cancel: "cancelled a ticket", "티켓을 취소";
    did_add_concert: "set up a concert", "공연을 만듦";
    did_change_concert: "changed a concert", "공연을 변경";
    did_change_event: "changed an event", "공연 일시를 변경";
    nothing_done: "Nothing was done yet.", "아직 기록이 없습니다.";
} }

#[cfg(test)]
mod tests {
    use super::PAIRS;
    use crate::web::pages::text::tests::check_pairs;

    #[test]
    fn every_text_is_there_in_every_language_with_the_same_gaps() {
        check_pairs(PAIRS);
    }
}
