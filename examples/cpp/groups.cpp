// Lists what the library has: for each group the targets that it is built for, with images and bytes.
//
//     softmax_fp16: sm_80 5 images, 49120 bytes; sm_90a 5 images, 51680 bytes
//
// Exits with 1 when there is no image. Needs no GPU and no driver. CMakeLists.txt and Makefile in the folders beside this
// file build it in each of the ways that docs/install.md has.
#include <kernels/kernels.h>

#include <cstddef>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

namespace {

struct Share {
    std::string_view target;
    std::size_t images;
    std::size_t bytes;
};

struct Group {
    std::string_view name;
    std::vector<Share> shares;
};

template <typename Entries, typename Member>
auto &entry(Entries &entries, Member member, std::string_view name)
{
    for (auto &each : entries) {
        if (each.*member == name) {
            return each;
        }
    }
    auto &added = entries.emplace_back();
    added.*member = name;
    return added;
}

std::vector<Group> groups()
{
    std::vector<Group> found;
    for (std::size_t index = 0; index < kernels_image_count(); index++) {
        const kernels_image &image = *kernels_image_at(index);
        Group &group = entry(found, &Group::name, kernels_image_group(&image));
        Share &share = entry(group.shares, &Share::target, kernels_image_target(&image));
        share.images++;
        share.bytes += image.size;
    }
    return found;
}

} // namespace

int main()
{
    const std::vector<Group> found = groups();
    for (const Group &group : found) {
        const char *before = ": ";
        std::printf("%.*s", static_cast<int>(group.name.size()), group.name.data());
        for (const Share &share : group.shares) {
            std::printf("%s%.*s %zu images, %zu bytes", std::exchange(before, "; "),
                        static_cast<int>(share.target.size()), share.target.data(), share.images, share.bytes);
        }
        std::puts("");
    }
    return found.empty() ? 1 : 0;
}
