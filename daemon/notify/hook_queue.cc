#include "notify/hook_queue.h"

#include <algorithm>
#include <iterator>

namespace gyrostat::notify {
namespace {

constexpr uint32_t kFormat = 1;  // Of what Save writes.

bool IsWorthAnother(int status) { return status == 0 || status == 408 || status == 429 || status >= 500; }

}  // namespace

void HookQueue::Configure(const Webhook& hook, Timing timing) {
  hook_ = hook;
  timing_ = timing;
  PutBack();
  not_before_ = {};  // Somebody may have mended it.
}

bool HookQueue::Push(Notice notice, base::MonotonicTime now) {
  Kind kind = notice.kind;
  if (!hook_.Wants(notice, &kind)) return false;
  notice.kind = kind;
  waiting_.push_back({std::move(notice), now});
  Trim();
  return true;
}

std::optional<base::MonotonicTime> HookQueue::DueAt(bool hurry) const {
  if (!under_way_.empty() || waiting_.empty()) return std::nullopt;
  const base::MonotonicTime gathered = hurry ? waiting_.front().since : waiting_.front().since + timing_.gather;
  return std::max(gathered, not_before_);
}

std::vector<Notice> HookQueue::Next(base::MonotonicTime now, bool hurry) {
  const auto due = DueAt(hurry);
  if (!due || *due > now) return {};
  const std::string run = waiting_.front().notice.run;
  const Kind kind = waiting_.front().notice.kind;
  const auto rides = [&](const Waiting& each) {
    return each.notice.run == run && (hook_.format != Format::kGrafana || each.notice.kind == kind);
  };
  const auto rest = std::stable_partition(waiting_.begin(), waiting_.end(), rides);
  std::move(waiting_.begin(), rest, std::back_inserter(under_way_));
  waiting_.erase(waiting_.begin(), rest);
  dropped_told_ = dropped_;
  std::vector<Notice> notices;
  for (const Waiting& each : under_way_) notices.push_back(each.notice);
  return notices;
}

HookQueue::Verdict HookQueue::Answered(const post::PostResult& result, base::MonotonicTime now) {
  if (result.taken() || !IsWorthAnother(result.status)) {
    under_way_.clear();
    not_before_ = {};
    if (!result.taken()) return ++failures_, Verdict::kGivenUp;
    dropped_ -= dropped_told_;
    failures_ = 0;
    return Verdict::kTaken;
  }
  PutBack();
  base::Milliseconds wait = timing_.backoff_min;
  for (uint32_t i = 0; i < failures_ && wait < timing_.backoff_max; ++i) wait *= 2;
  std::uniform_real_distribution<double> share(0.75, 1.25);  // Many daemons must not come back at the same moment.
  wait = std::min(wait, timing_.backoff_max);
  wait = base::Milliseconds(static_cast<int64_t>(static_cast<double>(wait.count()) * share(random_)));
  if (result.retry_after.count() > 0) wait = result.retry_after;
  not_before_ = now + wait;
  ++failures_;
  return Verdict::kAgain;
}

void HookQueue::PutBack() {
  waiting_.insert(waiting_.begin(), std::make_move_iterator(under_way_.begin()),
                  std::make_move_iterator(under_way_.end()));
  under_way_.clear();
  Trim();
}

void HookQueue::Trim() {
  while (waiting_.size() > hook_.queue_max) {
    waiting_.pop_front();
    ++dropped_;
    ++dropped_uncounted_;
  }
}

std::string HookQueue::Save() const {
  std::vector<Notice> notices;
  for (const Waiting& each : under_way_) notices.push_back(each.notice);
  for (const Waiting& each : waiting_) notices.push_back(each.notice);
  base::ByteWriter out;
  out.Put(kFormat);
  base::SaveArchive archive(&out);
  uint64_t dropped = dropped_;
  archive(dropped, notices);
  return out.bytes();
}

bool HookQueue::Load(const std::string& bytes, base::MonotonicTime now) {
  waiting_.clear();
  under_way_.clear();
  base::ByteReader in(bytes);
  uint32_t format = 0;
  std::vector<Notice> notices;
  base::LoadArchive archive(&in);
  archive(format, dropped_, notices);
  if (!in.ok() || format != kFormat) return dropped_ = 0, false;
  for (Notice& each : notices) waiting_.push_back({std::move(each), now});
  Trim();
  return true;
}

}  // namespace gyrostat::notify
