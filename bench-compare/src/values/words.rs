//! The lists from which names, cities and texts are drawn.

use std::sync::LazyLock;

/// A list of words.
pub(super) type Words = LazyLock<Vec<&'static [u8]>>;

/// Given names.
pub(super) static GIVEN: Words = LazyLock::new(|| split(GIVEN_NAMES));
/// Family names, also of makers.
pub(super) static FAMILY: Words = LazyLock::new(|| split(FAMILY_NAMES));
/// Cities, each one word.
pub(super) static CITIES: Words = LazyLock::new(|| split(CITY_NAMES));
/// Words of texts.
pub(super) static TEXT: Words = LazyLock::new(|| split(TEXT_WORDS));

fn split(words: &'static str) -> Vec<&'static [u8]> {
    words.split_ascii_whitespace().map(str::as_bytes).collect()
}

const GIVEN_NAMES: &str = "
    Aaron Abdul Ada Adaeze Adam Adriana Agnes Ahmed Aiko Aisha Akira Alan Alba Alejandro Alena Alice Alma Amara Amelia
    Amina Amir Ana Anders Andrea Anika Anil Anja Anna Antonio Anwar Ariel Arjun Arthur Asha Astrid Aurora Ayesha Aylin
    Beatriz Ben Bianca Birgit Bjorn Bruno Camila Carla Carlos Carmen Cecilia Chanda Chen Chidi Chiara Clara Claude
    Cora Dafne Daisuke Dalia Daniel Daria David Deepa Denise Diego Dimitri Dmitri Dolores Dora Edgar Edith Eduardo
    Elena Eli Elif Elise Emeka Emil Emma Enzo Erik Ester Esther Eva Fabio Farah Fatima Felix Fiona Flora Francois
    Frida Gabriel Gaia George Gita Giulia Grace Greta Gustav Hana Hannah Hans Harper Hassan Heidi Helena Henry Hiroshi
    Hugo Ibrahim Ida Igor Ilse Imani Indira Ingrid Irene Isaac Isabel Ivan Ivy Jack Jakob James Jana Javier Jin Joan
    Joao Johan Jonas Jorge Jose Juan Judith Julia Jun Kaito Karim Karl Katya Keiko Kenji Khalid Kim Kiran Kofi Lars
    Laura Layla Lea Leila Leo Liam Lin Lola Lucas Lucia Luis Luna Maja Malik Marco Maria Marta Mateo Maya Mei Mia
    Miguel Mila Mina Mohamed Nadia Naomi Nia Niko Nina Noah Noor Nora Olga Oliver Omar Oscar Pablo Paula Pedro Petra
    Priya Rafael Rahul Rania Ravi Rosa Ruth Said Salma Samir Sana Sara Sergei Simon Sofia Sven Tara Tariq Teresa Theo
    Thomas Uma Vera Victor Wanda Wei Xavier Yara Yasmin Yuki Yusuf Zara Zoe";

const FAMILY_NAMES: &str = "
    Abe Abebe Acosta Adams Adeyemi Agarwal Aguilar Ahmadi Akhtar Allen Almeida Alvarez Andersen Aoki Arslan Baker
    Balogun Banerjee Barbosa Bauer Becker Bello Berg Bianchi Boateng Bose Braun Brown Bruno Campos Cardoso Carter
    Castillo Castro Chan Chavez Chen Choi Chopra Clark Cohen Conti Cooper Correia Costa Cruz Danso Das Davies Delgado
    Demir Deng Diallo Diaz Dias Diop Dubois Duran Eriksen Evans Fernandez Ferrari Fischer Flores Fofana Fontaine Ford
    Foster Franco Fuchs Fujita Gallo Garcia Gill Girard Gomez Gonzalez Goto Greco Green Guerrero Gupta Haas Hall
    Hansen Haddad Hassan Hayashi Hernandez Herrera Hill Hoffmann Horvat Hossain Huang Hughes Hussain Ibrahim Inoue
    Islam Ito Ivanov Jackson Jain Jansen Jensen Jimenez Johansson Jones Joshi Juarez Kamau Kang Kaplan Kato Kaur Kaya
    Keita Keller Khalil Khan Kimura Klein Koch Kone Kovac Kowalski Kumar Lang Larsen Laurent Lee Lehmann Lewis Lima
    Lindberg Lopez Lund Maier Malik Mancini Marin Martin Martinez Mbeki Medina Mehta Mendes Mendoza Mensah Meyer
    Mohamed Molina Moore Morales Moreau Moreno Morris Mueller Murphy Mwangi Nair Nakamura Nasser Navarro Nguyen
    Nielsen Novak Nowak Nunes Obi Ochieng Okafor Okeke Oliveira Olsen Ortega Ortiz Osei Otieno Owusu Park Patel
    Pereira Perez Petrov Pham Popescu Ramirez Ramos Rao Reddy Reyes Ricci Rivera Rossi Rojas Romero Roy Ruiz Saito
    Salazar Sanchez Santos Sato Schmidt Schulz Shah Sharma Silva Singh Smith Soto Suzuki Tanaka Tan Taylor Thomas
    Torres Toure Tran Turner Usman Vargas Vega Wagner Walker Wang Weber White Wilson Wolf Wong Wood Wu Yamada Yang
    Yilmaz Young Zhang Zhou Zimmermann";

const CITY_NAMES: &str = "
    Aarhus Abidjan Abuja Accra Adana Adelaide Agra Algiers Alicante Almaty Amman Amsterdam Ankara Antalya Antwerp
    Arequipa Asmara Asuncion Athens Atlanta Auckland Austin Baghdad Baku Bamako Bandung Bangalore Bangkok Barcelona
    Bari Basel Beijing Beirut Belfast Belgrade Bergen Berlin Bern Bhopal Bilbao Bogota Bologna Bordeaux Boston
    Brasilia Bremen Brisbane Bristol Brno Brussels Bucharest Budapest Bursa Busan Cairo Calgary Cali Canberra Caracas
    Cardiff Casablanca Chengdu Chennai Chicago Cologne Conakry Copenhagen Cordoba Cork Curitiba Cusco Daegu Dakar
    Dalian Dallas Damascus Davao Delhi Denver Detroit Dhaka Doha Dortmund Douala Dresden Dubai Dublin Durban Edinburgh
    Essen Fez Florence Fortaleza Frankfurt Fukuoka Gdansk Geneva Genoa Ghent Giza Glasgow Goa Gothenburg Granada Graz
    Guadalajara Guangzhou Hamburg Hanoi Hanover Harare Havana Helsinki Hiroshima Houston Hyderabad Ibadan Incheon
    Indore Innsbruck Istanbul Izmir Jaipur Jakarta Jeddah Johannesburg Kabul Kampala Kano Kanpur Karachi Kathmandu
    Kazan Khartoum Kigali Kingston Kinshasa Kolkata Krakow Kumasi Kunming Kuwait Kyoto Lagos Lahore Leeds Leipzig Leon
    Lima Linz Lisbon Liverpool Ljubljana Lodz London Luanda Lublin Lucknow Lusaka Lyon Madrid Malaga Malmo Managua
    Manaus Manchester Manila Maputo Marseille Medan Medellin Melbourne Miami Milan Minsk Mombasa Monterrey Montreal
    Mosul Multan Mumbai Munich Nagoya Nairobi Nantes Naples Nice Niamey Nicosia Odense Oporto Oran Osaka Oslo Ottawa
    Palermo Panama Paris Perth Phoenix Pisa Porto Poznan Prague Pretoria Puebla Pune Quito Rabat Recife Reykjavik Riga
    Rome Rosario Rotterdam Salvador Santiago Sapporo Sarajevo Seattle Seoul Seville Shanghai Shenzhen Skopje Sofia
    Split Stockholm Surat Sydney Taipei Tallinn Tampere Tbilisi Tehran Tijuana Tokyo Toronto Toulouse Trieste Tripoli
    Tunis Turin Uppsala Utrecht Valencia Vancouver Venice Verona Vienna Vilnius Warsaw Wroclaw Wuhan Xiamen Yangon
    Yerevan Zagreb Zurich";

const TEXT_WORDS: &str = "
    able about above account across after again air all almost along also always among and answer any area around ask
    back bag balance band bank base basket battery beach because before begin behind below bench best better between
    big bird black blue board boat body book both bottle bottom box bread bridge bright bring brown build bus busy
    button cabin cable call camera camp card care carry case center chair change charge cheap check choice circle city
    clean clear clock close cloth cloud coat coffee cold color comfort common cook cool copper corner cotton country
    course cover cream cross cup daily dark day deep delivery desk detail dinner dish door double down draw dress
    drink drive dry early earth easy edge egg eight electric end engine enough entry even evening every exact extra
    face fabric fair fall family far fast feature field fill final find fine finger finish fire first fish five flat
    floor flower fold food foot force forest form forward four frame free fresh front fruit full garden gentle gift
    glass glove gold good grand grass gray great green grip ground group guard guide half hand handle hard heat heavy
    height high hill home hook hot hour house idea inch inside iron island item jacket join keep kettle key kind
    kitchen knife lamp large last late layer leather left leg length letter level lid light like line linen lock long
    loose love low machine main make many map mark market match material meal medium metal middle mile milk mind
    mirror model modern month moon morning most motor mountain much music narrow natural near neat new next night nine
    north note number oak ocean offer office oil old olive open orange order other outdoor outside oven over pack page
    paint pair paper park part path pattern people pepper phone photo picture piece pilot pink place plain plan plant
    plastic plate play pocket point port power press price print pure quick quiet rain range read ready red regular
    rest return rice right ring river road rock roof room root rope round rubber run safe salt same sand scale screen
    sea seal season seat second series service set seven shade shape sharp sheet shelf ship shirt shoe shop short side
    silk silver simple single six size skin sky sleeve slim slow small smart smooth snow soap soft solid some song
    south space spare speed spoon sport spring square stage stand star start steel step stone store storm story strap
    street strong style sugar summer sun support sure surface sweet table tail tall tank tea team ten tent test thick
    thin thing third three time tool top touch tower town track trail train travel tray tree trip true turn two under
    unit upper use value velvet very view visit walk wall warm wash watch water wave wax way wear week weight west
    wheel white wide wild wind window wine winter wire wish wood wool word work world yard year yellow young zone";
