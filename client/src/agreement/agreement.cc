#include "client/src/agreement/agreement.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/mix.h"

namespace gyrostat::client {
namespace {

// A rank that does not know its own weights must not look like one that does.
constexpr uint64_t kUnsureMark = 0x554E5355;

constexpr size_t kOutcomesRemembered = 256;  // protocol.md §2.4.

size_t MeasuredHeads(const Settings& settings) {
  return settings.allow_qk_clip ? size_t{settings.model.layers} * settings.model.heads : 0;
}

bool Allows(const Settings& settings, model::InterventionKind kind) {
  return std::find(settings.allow.begin(), settings.allow.end(), model::Token(kind)) != settings.allow.end();
}

std::string HeadName(uint32_t layer, uint32_t head) {
  return "head L" + std::to_string(layer) + " H" + std::to_string(head);
}

}  // namespace

Agreement::Agreement(const Settings* settings, AgreementTerms terms, const model::AttemptId& attempt)
    : settings_(settings),
      terms_(std::move(terms)),
      ledger_(settings->model.layers, settings->model.heads),
      registers_(&settings->model),
      measured_(MeasuredHeads(*settings)),
      attempt_(attempt),
      terms_hash_(base::Mix(TermsHash(*settings), registers_.BoundsHash())),
      issued_(kLagMax + 1) {
  outcomes_.reserve(kOutcomesRemembered);
  pending_.reserve(kLagMax + 1);
  confirmations_.reserve(kLagMax + 1);
  round_.proposal.entries.reserve(terms_.layout.entries);
}

uint64_t Agreement::Digest() const {
  const uint64_t digest = DigestOf({.terms = terms_hash_,
                                    .attempt = attempt_,
                                    .epoch = epoch_,
                                    .ledger_version = ledger_.version(),
                                    .ledger = ledger_hash_.value(),
                                    .registers = RegistersHash(),
                                    .local = local_});
  return unsure_ ? base::Mix(digest, kUnsureMark) : digest;
}

bool Agreement::needs_round(model::Boundary b) const {
  if (b < terms_.lag) return false;
  const Issued& issued = IssuedFor(b);
  return issued.waiting && issued.boundary == b - terms_.lag;
}

std::vector<Confirmation> Agreement::ConfirmedBy(model::Boundary b, std::span<const float> lanes) const {
  std::vector<Confirmation> confirmed;
  if (pending_.empty() || !needs_round(b) || lanes.size() != terms_.layout.size()) return confirmed;
  const Issued& issued = IssuedFor(b);
  Round round;
  ReadRound(terms_.layout, lanes, &round);
  if (!round.digests_equal || !round.boundaries_equal || !IsWordOf(issued, round)) return confirmed;
  for (const Pending& pending : pending_)
    if (pending.epoch == epoch_ && MayConfirm(pending, issued.boundary))
      confirmed.push_back({pending.tag, pending.applied_at, true, round.digest});
  return confirmed;
}

Agreement::Issued* Agreement::BeginBoundary(model::Boundary b) {
  boundary_ = b;
  forward_version_ = ledger_.version();
  confirmations_.clear();
  sets_local_ = false;
  entries_.clear();
  action_.verdict = Verdict::kNone;
  action_.tag = {};
  action_.reason.clear();
  action_.local = false;
  action_.kind = model::InterventionKind::kQkClip;
  action_.sets.clear();
  action_.ramp = 0;
  action_.plan.q.clear();
  action_.plan.k.clear();
  action_.plan.charged = {};
  action_.put_in = action_.basis = 0;
  action_.version_before = action_.version_after = ledger_.version();
  if (!needs_round(b)) return nullptr;
  Issued& issued = issued_[(b - terms_.lag) % issued_.size()];
  issued.waiting = false;
  return &issued;
}

const Action& Agreement::Decide(model::Boundary b, std::span<const float> lanes) {
  Issued* issued = BeginBoundary(b);
  if (issued == nullptr) return action_;
  if (lanes.size() != terms_.layout.size()) {
    BeUnsure("the collective gave back " + std::to_string(lanes.size()) + " lanes, wanted " +
             std::to_string(terms_.layout.size()));
    Confirm(*issued, false);
    return action_;
  }
  ReadRound(terms_.layout, lanes, &round_);
  bool equal = round_.digests_equal && round_.boundaries_equal;
  if (equal && !IsWordOf(*issued, round_)) {
    BeUnsure("the collective gave back another word than this rank put in");
    equal = false;
  }
  const bool this_history = IsThisHistory(*issued);
  if (this_history)
    measured_.Take(issued->boundary, lanes.subspan(terms_.layout.statistics_at(), terms_.layout.statistics),
                   !round_.bad_input);
  Confirm(*issued, equal);
  if (round_.malformed || round_.proposal.kind != ProposalKind::kNone) {
    action_.tag = round_.proposal.tag;
    action_.kind = round_.proposal.intervention;
    action_.put_in = issued->boundary;
  }
  std::string obstacle = Obstacle(equal);
  if (!unsure_) trouble_ = obstacle.empty() ? hold_reason_ : obstacle;
  if (!obstacle.empty()) {
    if (action_.put_in != 0) Conclude(Verdict::kHeld, std::move(obstacle));
    return action_;
  }
  if (!this_history) {
    if (action_.put_in != 0) Conclude(Verdict::kForeign, "the weights got another history after it was put in");
    return action_;
  }
  if (action_.put_in != 0) Judge();
  PlanLocal(*issued);
  return action_;
}

const Action& Agreement::DecideFailed(model::Boundary b) {
  Issued* issued = BeginBoundary(b);
  if (issued == nullptr) return action_;
  BeUnsure("the collective of boundary " + std::to_string(issued->boundary) +
           " failed on this rank: what the others did is not known");
  Confirm(*issued, false);
  return action_;
}

std::string Agreement::Obstacle(bool equal) const {
  if (unsure_) return trouble_;
  if (!round_.boundaries_equal) return "the ranks stand at different boundaries";
  if (!equal) return "the ranks' states differ";
  if (round_.not_ready) return hold_for_ever_ ? hold_reason_ : must_load() ? must_load_ : "a rank is not ready";
  return {};
}

void Agreement::Confirm(const Issued& issued, bool equal) {
  size_t kept = 0;
  for (const Pending& pending : pending_) {
    if (pending.epoch == epoch_ && !MayConfirm(pending, issued.boundary)) {
      pending_[kept++] = pending;
    } else if (pending.epoch == epoch_) {
      confirmations_.push_back({pending.tag, pending.applied_at, equal, round_.digest});
    }
  }
  pending_.resize(kept);
}

void Agreement::Judge() {
  const Proposal& proposal = round_.proposal;
  if (round_.malformed) return Conclude(Verdict::kRefused, "the order in R cannot be read");
  if (proposal.kind == ProposalKind::kClip) return JudgeClip();
  if (proposal.intervention == model::InterventionKind::kQkClip) return JudgeLocalRegister();
  JudgeRegisters();
}

std::string Agreement::CheckTerms(const Proposal& proposal, remedy::ClipShape* shape) const {
  if (!Allows(*settings_, proposal.intervention))
    return std::string(model::Token(proposal.intervention)) + " is not on the job's allow-list";
  std::string why;
  const auto found = remedy::ShapeFor(settings_->model, proposal.variant, &why);
  if (!found) return why;
  *shape = *found;
  // Of a local order only tau, variant and split are judged, which is what a clip in R has in common with it.
  model::Order order;
  order.where = model::ClipWhere::kLocal;
  order.tau = static_cast<double>(proposal.tau);
  order.variant = proposal.variant;
  order.split = static_cast<double>(proposal.split);
  return remedy::Validate(order, *shape, ledger_, {}, {.tau_min = settings_->tau_min});
}

void Agreement::JudgeClip() {
  const Proposal& proposal = round_.proposal;
  std::string why = CheckTerms(proposal, &shape_);
  if (why.empty()) why = CheckClip(shape_);
  if (!why.empty()) {
    entries_.clear();
    return Conclude(Verdict::kRefused, std::move(why));
  }
  action_.tau = static_cast<double>(proposal.tau);
  remedy::PlanClip(shape_, entries_, ledger_, &action_.plan);
  if (action_.plan.charged.size() == 0)
    return Conclude(Verdict::kVoid, "every head already stands at or beyond its target");
  Conclude(Verdict::kApply, {});
}

std::string Agreement::CheckClip(const remedy::ClipShape& shape) {
  const Proposal& proposal = round_.proposal;
  if (!(proposal.tau > 0)) return "tau is 0, wanted a number above 0";
  model::AttnLogitInfo made = settings_->attn_logit;
  made.kind = model::LogitKind::kExact;  // Of what kind they were, each rank said with bad_input.
  if (std::string why = remedy::CheckMaxima(made, settings_->model.logit_softcap.has_value()); !why.empty()) return why;
  if (proposal.entries.empty()) return "the order names no head, wanted at least one";
  const ProposalEntry* last = nullptr;
  for (const ProposalEntry& entry : proposal.entries) {
    if (entry.what >= shape.layers * shape.heads) return "the order names a head that the model does not have";
    const uint32_t layer = entry.what / shape.heads, head = entry.what % shape.heads;
    if (last != nullptr && last->what >= entry.what) return HeadName(layer, head) + " is out of order or named twice";
    last = &entry;
    if (entry.stamp > action_.put_in) return HeadName(layer, head) + ": its basis is before the first boundary";
    const model::Boundary at = action_.put_in - entry.stamp;
    const MeasuredRing::Slot* basis = Basis(at, boundary_);
    if (basis == nullptr) return "the maxima of boundary " + std::to_string(at) + " are not known here any more";
    remedy::Ticks target = 0;
    if (const char* why = CheckEntry(entry, proposal.tau, *basis, &target); why != nullptr)
      return HeadName(layer, head) + ": " + why;
    entries_.push_back({layer, head, basis->maxima[entry.what], target});
  }
  return {};
}

const MeasuredRing::Slot* Agreement::Basis(model::Boundary basis, model::Boundary now) const {
  return measured_.Find(basis, now);
}

const char* Agreement::CheckEntry(const ProposalEntry& entry, float tau, const MeasuredRing::Slot& basis,
                                  remedy::Ticks* target) const {
  const std::optional<remedy::Ticks> excess = Excess(basis.maxima[entry.what], tau);
  if (!excess) return "its maximum at the basis is not finite, or not above tau";
  if (static_cast<float>(*excess) != entry.value) return "the excess is another than basis, tau and maximum give";
  const auto lambda = ledger_.At(basis.version, entry.what / ledger_.heads(), entry.what % ledger_.heads());
  if (!lambda) return "the ledger at its basis is not known any more";
  *target = *lambda + *excess;
  return nullptr;
}

std::optional<remedy::Ticks> Agreement::Excess(float measured, float tau) {
  return remedy::ClipTarget(static_cast<double>(measured), static_cast<double>(tau), 0);
}

void Agreement::JudgeLocalRegister() {
  const Proposal& proposal = round_.proposal;
  remedy::ClipShape shape;
  if (std::string why = CheckTerms(proposal, &shape); !why.empty())
    return Conclude(Verdict::kRefused, std::move(why));
  if (proposal.entries.size() != 1 || proposal.entries[0].what != 0 || proposal.entries[0].value != proposal.tau)
    return Conclude(Verdict::kRefused, "the order in R cannot be read");
  if (proposal.entries[0].stamp != local_version_ % kLaneIntegerMax)
    return Conclude(Verdict::kVoid, "local clipping was set by another order first");
  sets_local_ = true;
  Conclude(Verdict::kApply, {});
}

void Agreement::JudgeRegisters() {
  const Proposal& proposal = round_.proposal;
  if (!Allows(*settings_, proposal.intervention))
    return Conclude(Verdict::kRefused,
                    std::string(model::Token(proposal.intervention)) + " is not on the job's allow-list");
  for (const ProposalEntry& entry : proposal.entries)
    action_.sets.push_back({entry.what, entry.value, entry.stamp});
  action_.ramp = proposal.ramp;
  SetsVerdict judged = registers_.Judge(proposal.intervention, action_.sets, proposal.ramp, boundary_);
  if (judged.what == SetsVerdict::Do::kApply) return Conclude(Verdict::kApply, {});
  action_.sets.clear();
  Conclude(judged.what == SetsVerdict::Do::kVoid ? Verdict::kVoid : Verdict::kRefused, std::move(judged.reason));
}

void Agreement::PlanLocal(const Issued& issued) {
  if (!local_.on() || sets_local_) return;
  const MeasuredRing::Slot* basis = Basis(issued.boundary, boundary_);
  if (basis == nullptr) return;
  std::string why;
  const auto shape = remedy::ShapeFor(settings_->model, local_.variant, &why);
  if (!shape) return;
  LocalEntries(basis->maxima, local_, HasMaster(settings_->model), ledger_, basis->version, &local_entries_);
  const bool any = std::any_of(local_entries_.begin(), local_entries_.end(), [this](const model::ClipEntry& entry) {
    return entry.target_ticks > ledger_.At(entry.layer, entry.head);
  });
  // An order of other terms goes first: what local mode asks for comes again at the next boundary.
  const bool with_order = action_.verdict == Verdict::kApply && !entries_.empty();
  if (!any || (with_order && (shape->variant != shape_.variant || shape->split != shape_.split))) return;
  entries_.insert(entries_.end(), local_entries_.begin(), local_entries_.end());
  remedy::PlanClip(*shape, entries_, ledger_, &action_.plan);
  action_.local = true;
  if (!with_order) action_.tau = local_.tau;
  action_.basis = issued.boundary;
}

void Agreement::Applied() {
  if (!action_.acts()) return;
  const Proposal& proposal = round_.proposal;
  action_.version_before = ledger_.version();
  if (action_.plan.charged.size() > 0) {
    ledger_.Apply(action_.plan.charged);
    ledger_hash_.Moved(ledger_, action_.plan.charged);
  }
  action_.version_after = ledger_.version();
  if (sets_local_) {
    local_ = {.order_id = proposal.tag.AsId(),
              .tau = static_cast<double>(proposal.tau),
              .variant = proposal.variant,
              .split = static_cast<double>(proposal.split)};
    ++local_version_;
  } else if (!action_.sets.empty()) {
    registers_.Apply(action_.kind, action_.sets, action_.ramp, boundary_);
  }
  const bool order = action_.verdict == Verdict::kApply;
  if (order) Remember(action_.tag, model::AckOutcome::kApplied);
  pending_.push_back({order ? action_.tag : OrderTag{}, boundary_, epoch_, !order});
}

void Agreement::Failed(const std::string& why) {
  if (action_.verdict == Verdict::kApply) Remember(action_.tag, model::AckOutcome::kFailed);
  BeUnsure("what was agreed on could not be applied here: " + why);
}

bool Agreement::Fill(model::Boundary b, const FillInput& in, std::span<float> lanes) {
  boundary_ = b;
  measured_.Begin(b, ForwardVersion());
  const RankWord word{.digest = Digest(),
                      .boundary = b,
                      .not_ready = !in.ready || unsure_ || hold_for_ever_ || must_load(),
                      .bad_input = !in.maxima_usable,
                      .proposal = in.proposal};
  const bool fits = WriteWord(terms_.layout, word, lanes);
  const std::span<float> more = lanes.subspan(terms_.layout.statistics_at());
  std::fill(more.begin(), more.end(), -FLT_MAX);
  const std::span<float> statistics = more.first(terms_.layout.statistics);
  if (in.maxima.size() == statistics.size())
    std::transform(in.maxima.begin(), in.maxima.end(), statistics.begin(), ToLane);
  issued_[b % issued_.size()] = {.boundary = b, .epoch = epoch_, .digest = word.digest, .waiting = true};
  return fits;
}

bool Agreement::NewEpoch(const RestoredState* restored, std::string* why) {
  if (restored == nullptr) {
    ledger_.Reset();
    registers_.Reset();
  } else {
    JobRegisters registers = registers_;
    std::string none;
    if (why == nullptr) why = &none;
    if (!registers.Restore(restored->registers, restored->envelope, restored->boundary, boundary_, why)) return false;
    if (!ledger_.Restore(restored->ledger_version, restored->ledger)) {
      *why = "the state names heads that the model does not have";
      return false;
    }
    registers_ = std::move(registers);
    outcomes_.clear();
    outcomes_next_ = 0;
    for (const auto& [id, outcome] : restored->outcomes) Remember(OrderTag::Of(id), outcome);
  }
  ++epoch_;
  ledger_hash_.Read(ledger_);
  ForgetEvidence();
  pending_.clear();
  local_ = {};
  local_version_ = 0;
  unsure_ = false;
  must_load_.clear();
  trouble_ = hold_reason_;
  return true;
}

Passage Agreement::Leave(model::Boundary b) const {
  return {.attempt = attempt_,
          .epoch = epoch_ + 1,
          .boundary = b,
          .state = unsure_ ? nullptr : State(b),
          .unsure = unsure_ ? trouble_ : std::string(),
          .must_load = must_load_};
}

bool Agreement::GoOn(Passage* brought, uint32_t epoch, model::Boundary b, std::string* why) {
  boundary_ = b;
  if (brought->state != nullptr) brought->state->boundary = b;  // All count the same ones.
  if (!NewEpoch(StateOf(*brought), why)) return false;
  epoch_ = EpochAfter(*brought, epoch);
  must_load_ = MustLoad(*brought, b);
  if (!must_load_.empty() && !brought->unsure.empty()) BeUnsure(brought->unsure);
  if (!unsure_ && must_load()) trouble_ = must_load_;
  return true;
}

std::string Agreement::MustLoad(const Passage& brought, model::Boundary b) const {
  if (!brought.unsure.empty()) return brought.unsure;
  if (!brought.must_load.empty()) return brought.must_load;
  if (brought.state == nullptr) return "this rank is new among the others: all must load one state first";
  if (brought.boundary < b)
    return "this rank has missed boundary " + std::to_string(b) +
           ", which others passed: all must load one state first";
  return {};
}

std::unique_ptr<RestoredState> Agreement::State(model::Boundary b) const {
  auto state = std::make_unique<RestoredState>();
  state->boundary = b;
  state->ledger_version = ledger_.version();
  state->ledger = ledger_.Sparse();
  state->registers = registers_.file().Saved();
  state->envelope = registers_.envelope();
  state->outcomes = Outcomes();
  return state;
}

void Agreement::HoldForEver(const std::string& why) {
  if (hold_for_ever_) return;
  hold_for_ever_ = true;
  hold_reason_ = why;
  if (!unsure_) trouble_ = why;
}

void Agreement::Conclude(Verdict verdict, std::string reason) {
  action_.verdict = verdict;
  action_.reason = std::move(reason);
  if (verdict == Verdict::kRefused) Remember(action_.tag, model::AckOutcome::kRefused);
  if (verdict == Verdict::kVoid) Remember(action_.tag, model::AckOutcome::kVoid);
}

void Agreement::BeUnsure(std::string why) {
  if (unsure_) return;  // The first trouble is the cause.
  unsure_ = true;
  trouble_ = std::move(why);
}

void Agreement::Remember(const OrderTag& tag, model::AckOutcome outcome) {
  if (outcomes_.size() < kOutcomesRemembered) {
    outcomes_.emplace_back(tag, outcome);
    return;
  }
  outcomes_[outcomes_next_] = {tag, outcome};
  outcomes_next_ = (outcomes_next_ + 1) % kOutcomesRemembered;
}

std::vector<std::pair<model::OrderId, model::AckOutcome>> Agreement::Outcomes() const {
  std::vector<std::pair<model::OrderId, model::AckOutcome>> list;
  for (size_t i = 0; i < outcomes_.size(); ++i) {
    const auto& [tag, outcome] = outcomes_[(outcomes_next_ + i) % outcomes_.size()];
    list.emplace_back(tag.AsId(), outcome);
  }
  return list;
}

}  // namespace gyrostat::client
