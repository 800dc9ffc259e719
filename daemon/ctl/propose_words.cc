#include "ctl/propose_words.h"

#include <CLI/CLI.hpp>

namespace gyrostat::ctl {

const char kProposeExamples[] =
    "  gyrostatctl propose my-run warmup_extension --to-step 14000 --reason \"the first blocks stand still\"\n"
    "  gyrostatctl propose my-run deepnorm_alpha                DeepNorm's alpha for its depth, ramped\n"
    "  gyrostatctl propose my-run deepnorm_alpha --alpha 2.4 --beta 0.5 --ramp 100\n"
    "  gyrostatctl propose my-run lr_scale --scale 0.5 --for 500\n"
    "  gyrostatctl propose my-run grad_clip --max-norm 0.5\n"
    "  gyrostatctl propose my-run skip_step --at-step 81234\n"
    "  gyrostatctl propose my-run checkpoint\n\n"
    "What a kind takes, and its default:\n"
    "  warmup_extension  --to-step STEP   where the warm-up shall end (7 declared warm-ups; at most 8, and before the\n"
    "                                     run's last step). The learning rate drops at once to the line that leads\n"
    "                                     there. After the warm-up: a notch, as long as the warm-up was\n"
    "  deepnorm_alpha    --alpha A        (DeepNorm's for this depth; at most a factor 5 at a time)\n"
    "                    --beta B         scale of the branches' weights; never rises (none)\n"
    "                    --ramp N         boundaries, at most 200 (50). It comes with lr_scale 0.3 for 50\n"
    "  lr_scale          --scale M        0.01 to 1 (0.5)      --for N  boundaries, 0 for good (1000)\n"
    "  grad_clip         --max-norm X     (twice the median gradient norm of the last 200 reports)\n"
    "  skip_step         --at-step STEP   needed\n"
    "  checkpoint, rollback, halt         nothing: requests to the training loop\n\n"
    "A proposal waits for `gyrostatctl approve`; what is approved is the intent, and the numbers are made from the\n"
    "freshest report when it is sent. The run must be in mode advise or act, and the job must allow the kind. A value\n"
    "out of bounds is refused, never clamped.\n";

void AddProposeWords(CLI::App* sub, Request* request) {
  ProposeQuestion& question = request->propose;
  sub->add_option("RUN", request->run, "Name of the run, as `gyrostatctl runs` lists it")->required();
  sub->add_option("KIND", question.kind, "Of intervention")
      ->required()
      ->check(CLI::IsMember({"warmup_extension", "deepnorm_alpha", "lr_scale", "grad_clip", "skip_step", "checkpoint",
                             "rollback", "halt"}));
  sub->add_option("--to-step", question.to_step, "warmup_extension: where the warm-up shall end")
      ->check(CLI::Range(1.0, 9e15))->option_text("STEP");
  sub->add_option("--alpha", question.alpha, "deepnorm_alpha: the target")->option_text("A");
  sub->add_option("--beta", question.beta, "deepnorm_alpha: scale of the branches' weights")->option_text("B");
  sub->add_option("--ramp", question.ramp, "deepnorm_alpha: boundaries until it is there")
      ->check(CLI::Range(1, 200))->option_text("N");
  sub->add_option("--scale", question.scale, "lr_scale: times the learning rate")->option_text("M");
  sub->add_option("--for", question.for_boundaries, "lr_scale: boundaries; 0: for good")
      ->check(CLI::Range(0, 16000000))->option_text("N");
  sub->add_option("--max-norm", question.max_norm, "grad_clip: the largest gradient norm")->option_text("X");
  sub->add_option("--at-step", question.at_step, "skip_step: which one")
      ->check(CLI::Range(0.0, 9e15))->option_text("STEP");
  sub->add_option("--reason", request->reason, "Kept with the proposal")->option_text("TEXT");
  sub->add_option("--author", request->author, "Who proposes this (default: $USER)")->option_text("NAME");
}

std::string WrongInPropose(const ProposeQuestion& question) {
  struct Word {
    bool given;
    const char* option;
    const char* kind;
  };
  const Word words[] = {{question.to_step.has_value(), "--to-step", "warmup_extension"},
                        {question.alpha.has_value(), "--alpha", "deepnorm_alpha"},
                        {question.beta.has_value(), "--beta", "deepnorm_alpha"},
                        {question.ramp.has_value(), "--ramp", "deepnorm_alpha"},
                        {question.scale.has_value(), "--scale", "lr_scale"},
                        {question.for_boundaries.has_value(), "--for", "lr_scale"},
                        {question.max_norm.has_value(), "--max-norm", "grad_clip"},
                        {question.at_step.has_value(), "--at-step", "skip_step"}};
  for (const Word& word : words)
    if (word.given && question.kind != word.kind)
      return std::string(word.option) + " is given to " + question.kind + ", wanted only with " + word.kind;
  if (question.kind == "skip_step" && !question.at_step) return "skip_step needs --at-step STEP";
  return "";
}

}  // namespace gyrostat::ctl
