#include "ctl/deepnorm.h"

#include <string>
#include <vector>

#include "ctl/json.h"
#include "ctl/render.h"
#include "remedy/deepnorm.h"

namespace gyrostat::ctl {
namespace {

remedy::DeepNormArch ArchOf(const std::string& token) {
  if (token == "encoder") return remedy::DeepNormArch::kEncoder;
  return token == "decoder" ? remedy::DeepNormArch::kDecoder : remedy::DeepNormArch::kEncoderDecoder;
}

}  // namespace

int DeepNorm(const Request& request, const Console& console) {
  std::string why;
  const auto constants = remedy::DeepNormFor(ArchOf(request.arch), request.layers, request.decoder_layers, &why);
  if (!constants) {
    console.err << "gyrostatctl: deepnorm: " << why << "\n";
    return kRefused;
  }
  std::vector<DeepNormStack> stacks;
  const auto add = [&](const char* name, const std::optional<remedy::DeepNormConstants>& c) {
    if (c) stacks.push_back({name, c->alpha, c->beta, c->budget});
  };
  add("encoder", constants->encoder);
  add("decoder", constants->decoder);
  if (request.json) console.out << JsonDeepNorm(request.arch, stacks) << "\n";
  else console.out << RenderDeepNorm(request.arch, stacks, console.style);
  return kDone;
}

}  // namespace gyrostat::ctl
