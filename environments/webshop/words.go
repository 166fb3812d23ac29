package webshop

import "strings"

// kinds are what the generated shop sells. A type's name is what its title and its instruction say; its path has at least three categories, so that
// types of one shelf share two. No two values of its options are alike, so that a wrong one is never paid.
var kinds = []kind{
	{
		path: "Clothing › Shoes", types: "hiking boots, running shoes, rain boots, penny loafers, house slippers, strap sandals, canvas sneakers",
		low: 18, high: 120, brands: "Norvik Tamaro Stridel Ovalis Pelluna Kestra",
		attributes: "waterproof, non slip, memory foam, arch support, steel toe, machine washable, lightweight, slip resistant, rubber sole, wide fit, quick drying, ankle support",
		options:    []string{"color: @", "size: 5, 6, 7, 8, 9, 10, 11, 12"},
	},
	{
		path: "Clothing › Tops", types: "t-shirt, pullover hoodie, polo shirt, knit sweater, silk blouse, tank top, denim jacket, rain coat, zip cardigan",
		low: 9, high: 90, brands: "Wenfold Arlette Moorby Cassano Lindell Juniva",
		attributes: "long sleeve, short sleeve, machine washable, hand wash, slim fit, loose fit, moisture wicking, quick drying, crew neck, v neck, tumble dry, wrinkle free, tall cut",
		options:    []string{"color: @", "size: 34, 36, 38, 40, 42, 44"},
	},
	{
		path: "Home › Bedding", types: "duvet cover, bed sheet set, pillow case, throw blanket, mattress topper, bed skirt",
		low: 12, high: 160, brands: "Somnera Cotwell Dreyfield Halden Lulane Fennick",
		attributes: "machine washable, super soft, snug fit, fade resistant, easy care, breathable, hypoallergenic, double sided, stain resistant, deep pocket, wrinkle free, quick drying",
		options:    []string{"color: @", "size: twin, full, queen, king, crib"},
	},
	{
		path: "Home › Kitchen", types: "frying pan, water bottle, coffee mug, cutting board, knife set, lunch box, tea kettle, mixing bowl, storage jar",
		low: 8, high: 80, brands: "Kuchara Bramley Ostwin Platera Verdano Cooperly",
		attributes: "dishwasher safe, bpa free, leak proof, double wall, non stick, easy clean, eco friendly, heavy duty, heat resistant, stainless steel, microwave safe, space saving",
		options:    []string{"color: @", "pack: single, 2 pack, 3 pack, 4 pack, 6 pack"},
	},
	{
		path: "Grocery › Snacks", types: "protein bar, potato chips, oat granola, trail mix, sandwich cookies, fruit gummies, rice crackers, peanut butter",
		low: 4, high: 45, brands: "Harvesta Munchly Olmera Grainfold Sunleaf Barkwell",
		attributes: "gluten free, sugar free, low carb, non gmo, dairy free, keto friendly, plant based, high protein, soy free, nut free, low sodium, certified organic",
		options:    []string{"flavor: vanilla, chocolate, strawberry, pecan, honey, cinnamon, blueberry, salted, maple, ginger", "size: 1 bag, 4 bags, 6 bags, 12 bags, 30 bags"},
	},
	{
		path: "Grocery › Drinks", types: "green tea, coffee beans, hot cocoa, sparkling juice, herbal infusion, oat milk, energy drink",
		low: 5, high: 50, brands: "Brewster Tealume Kaffira Quenchly Morrow Leafwell",
		attributes: "caffeine free, certified organic, sugar free, fair trade, non gmo, low calorie, artificial free, plant based, gluten free, dairy free, usda approved, kosher certified",
		options:    []string{"flavor: lemon, mint, peach, vanilla, ginger, cherry, hazelnut, classic, mango, cinnamon", "size: 8 count, 12 count, 30 count, 45 count, 96 count"},
	},
	{
		path: "Beauty › Personal Care", types: "body lotion, hair shampoo, face cream, lip balm, hair mask, hand soap, bath salts, foot scrub, shaving gel",
		low: 5, high: 60, brands: "Aurelle Pureva Dermisol Belluna Silkara Florine",
		attributes: "cruelty free, paraben free, alcohol free, oil free, sulfate free, long lasting, dermatologist tested, fragrance free, anti aging, deep cleansing, sensitive skin, travel size",
		options:    []string{"scent: lavender, rose, coconut, vanilla, lemon, sandalwood, jasmine, mint, unscented, eucalyptus", "size: 2 oz, 4 oz, 8 oz, 16 oz, 30 oz"},
	},
	{
		path: "Electronics › Audio", types: "bluetooth speaker, wireless earbuds, gaming headset, studio microphone, clock radio, sound bar",
		low: 15, high: 240, brands: "Sonaro Vibrex Tonalis Echora Basskin Auralyn",
		attributes: "noise cancelling, hands free, long lasting, fast charging, water resistant, high definition, stereo sound, easy pairing, low latency, voice control, plug and play, compact",
		options:    []string{"color: @", "style: plain, with case, with dock, with charger, bundle"},
	},
	{
		path: "Electronics › Accessories", types: "phone case, charging cable, power bank, tablet stand, laptop sleeve, camera tripod, screen protector, desk keyboard",
		low: 6, high: 90, brands: "Gridlane Voltera Clampio Techmere Pixford Zentrix",
		attributes: "fast charging, shock proof, scratch resistant, heavy duty, easy install, wireless charging, high speed, carrying strap, ultra slim, water resistant, tangle free, quick release",
		options:    []string{"color: @", "length: 1 foot, 3 feet, 6 feet, 10 feet, 25 feet"},
	},
	{
		path: "Furniture › Living Room", types: "office chair, coffee table, bar stool, book case, night stand, floor lamp, shoe rack, sofa bed",
		low: 40, high: 480, brands: "Holmstad Rivoli Timbera Nordal Casella Oakhurst",
		attributes: "easy assemble, solid wood, steel frame, space saving, lumbar support, height adjustable, heavy duty, mid century, faux leather, easy clean, storage space, high density",
		options:    []string{"color: @", "style: modern, rustic, vintage, industrial, classic"},
	},
	{
		path: "Sports › Outdoor", types: "camping tent, sleeping bag, yoga mat, hiking backpack, beach towel, folding stool, fishing rod, bike helmet",
		low: 12, high: 220, brands: "Trekora Summitry Valdera Ridgeon Campion Alpano",
		attributes: "water resistant, lightweight, easy carry, quick drying, heavy duty, non slip, tear resistant, wind proof, eco friendly, high visibility, machine washable, foldable",
		options:    []string{"color: @", "size: small, medium, large, jumbo, one size"},
	},
	{
		path: "Pets › Supplies", types: "dog bed, cat tree, dog leash, pet carrier, cat toy, food bowl, dog collar, bird cage",
		low: 6, high: 140, brands: "Pawsley Whiskora Furano Barkmere Tailwyn Petunio",
		attributes: "machine washable, non slip, easy clean, chew resistant, heavy duty, quick release, eco friendly, water resistant, anti anxiety, reflective, foldable, double sided",
		options:    []string{"color: @", "size: tiny, small, medium, large, giant"},
	},
}

// shades are the values of the option color. Each is a name in colours, and no other name of colours stands in it.
const shades = "black, white, navy, red, green, beige, pink, purple, grey, orange, yellow, teal, ivory, olive, khaki, coral, silver, brown"

// asks are how instructions begin: attributes and type take the places of %s.
var asks = []string{
	"i am looking for %s %s", "i need %s %s", "find me %s %s", "i want to buy %s %s", "show me %s %s", "i would like %s %s", "looking for %s %s", "please get me %s %s",
}

// looks are first sentences of descriptions: the type takes the place of %s.
var looks = []string{
	"A well made %s for every day.", "This %s lasts for years.", "Our favorite %s of the season.", "A simple %s that does what it should.", "The %s that our customers come back for.",
}

// opinions are what reviews say.
var opinions = []string{
	"Exactly as described.", "Good for the price.", "It arrived late, but I like it.", "Not what I had hoped for.", "Would buy again.", "My sister wants one too.", "It feels cheap.", "Better than the one I had before.",
}

// colours are the names that an option's value is cut down to, see colourOf: in the order of the alphabet, as the authors' list. Some are no colours.
var colours = strings.Fields(`
	alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo caramel champagne charcoal
	cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso fuchsia gold
	granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot
	midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
	sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow`)

// describing are words of titles that are no nouns: those without a meaning of their own, and those of attributes.
var describing = func() map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(`
		a about an and are as at be best big by can cute each every extra fashionable for fresh from full good great handmade has high ideal in into
		is it its large light long low made many mini more most natural new no non not of off on one only or original other our out over perfect
		perfectly personalized portable premium professional soft small super sturdy that the these this to top two ultra up use used very warm
		white wide with without you your`) {
		out[w] = true
	}
	for _, k := range kinds {
		for _, w := range words(k.attributes) {
			out[w] = true
		}
	}
	return out
}()
